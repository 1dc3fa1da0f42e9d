"""Writes docs/openapi.json: `python -m services.gateway.openapi`."""

from __future__ import annotations

import json
from pathlib import Path

from services.gateway.api import app_of_routes
from services.gateway.openapi_document import complete

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "openapi.json"


def rendered() -> str:
    """The document as it stands in the repository."""
    return json.dumps(complete(app_of_routes()), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    DOCUMENT.write_text(rendered(), encoding="utf-8")
    print(f"wrote {DOCUMENT.name}")
