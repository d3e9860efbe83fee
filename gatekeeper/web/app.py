"""The application: middleware, routes, error answers. ``gatekeeper serve`` builds it through ``bootstrap``."""

from __future__ import annotations

from importlib.metadata import version

from fastapi import FastAPI
from starlette.staticfiles import StaticFiles

from gatekeeper.web import api, dashboard, documentation, health, webhooks
from gatekeeper.web.errors import add_error_handlers
from gatekeeper.web.limits import RequestLog, SecurityHeaders, TrustedHosts
from gatekeeper.web.options import WebContext, WebOptions
from gatekeeper.web.pages import STATIC


def create_app(ctx: WebContext, options: WebOptions) -> FastAPI:
    """Build the web application over a context."""
    app = FastAPI(
        title="gatekeeper",
        version=version("gatekeeper"),
        description="A gate for GPU kernel pull requests: four policies and a race of candidate against baseline.",
        docs_url=None,  # the framework's own page loads scripts from elsewhere
        redoc_url=None,
        openapi_url="/openapi.json" if options.documentation else None,
        redirect_slashes=False,
    )
    app.include_router(webhooks.router(ctx, options))
    app.include_router(health.router(options))
    app.include_router(api.router(ctx))
    app.include_router(dashboard.router(ctx))
    if options.documentation:
        app.include_router(documentation.router(app))
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    add_error_handlers(app)
    # The last one added is the outermost.
    app.add_middleware(TrustedHosts, hosts=options.hosts)
    app.add_middleware(SecurityHeaders, documented=options.documentation)
    app.add_middleware(RequestLog)
    return app
