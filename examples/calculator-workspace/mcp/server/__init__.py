from .calculator import mcp

__all__ = ["mcp"]
