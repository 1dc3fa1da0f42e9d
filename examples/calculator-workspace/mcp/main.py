"""The tool server. Osmosis imports this file; run it yourself to serve the tools over HTTP."""

import argparse

from server import mcp
from tools import *  # noqa: F403

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Serve the calculator's tools")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    options = parser.parse_args()
    mcp.run(transport="http", host=options.host, port=options.port)
