"""The web page at `/`: projects, runs and a run's live curve. The API key that is typed in stays in the page's memory."""

from __future__ import annotations

import secrets
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from services.gateway.state import gateway_of

router = APIRouter()

_PAGE = (Path(__file__).parent.parent / "page" / "index.html").read_text(encoding="utf-8")


@router.get("/", include_in_schema=False)
async def page(request: Request) -> HTMLResponse:
    """The page, with a policy that lets it talk to this gateway alone."""
    nonce = secrets.token_urlsafe(16)
    html = _PAGE.replace("__NONCE__", nonce)
    html = html.replace("__SANDBOX__", gateway_of(request).platform.settings.sandbox)
    policy = (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self';"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    headers = {
        "Content-Security-Policy": policy,
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
    }
    return HTMLResponse(html, headers=headers)
