"""The app: every router behind the door, errors as problems, and the documentation of all of it."""

from __future__ import annotations

from fastapi import FastAPI

from services.gateway.door import Door
from services.gateway.openapi_document import describe
from services.gateway.problems import add_problem_handlers
from services.gateway.routes import ROUTERS
from services.gateway.state import Gateway


def app_of_routes() -> FastAPI:
    """The routes and their documentation, without a platform behind them."""
    app = FastAPI(
        title="Osmosis",
        version="1",
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
        separate_input_output_schemas=False,
        generate_unique_id_function=lambda route: route.name,
    )
    for router in ROUTERS:
        app.include_router(router)
    add_problem_handlers(app)
    describe(app)
    return app


def create_app(gateway: Gateway) -> FastAPI:
    """The app that serves."""
    app = app_of_routes()
    app.state.gateway = gateway
    app.add_middleware(Door, gateway=gateway)
    return app
