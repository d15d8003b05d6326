"""The application: routes, refusals, and the pool that its requests share.

Nothing is kept between requests: any number of processes may stand behind a balancer. No pipeline's
code is ever imported here. Handlers are plain functions in as many threads as there are
connections; clients that wait hold none (``waiting.py``).
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

import anyio.to_thread
import psycopg
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route
from starlette.types import ASGIApp

from suimon.api import (
    acts,
    artifacts,
    destinations,
    doors,
    health,
    people,
    pipelines,
    pools,
    problems,
    quotas,
    runs,
    standing,
    system,
    webhooks,
)
from suimon.api.guard import Guard, Rules, request_id
from suimon.api.pool import SIZE, Pool
from suimon.api.waiting import Waiting
from suimon.db import migrate
from suimon.errors import SuimonError
from suimon.store.secret_key import KeyRing

ROUTERS: Final = (
    *(
        one.api
        for one in (
            runs,
            artifacts,
            acts,
            pipelines,
            pools,
            doors,
            destinations,
            quotas,
            people,
            standing,
            system,
            health,
        )
    ),
    webhooks.router,
)
_ABOUT: Final = """Durable pipelines on PostgreSQL. Refusals are `application/problem+json`; lists
come in pages with `limit` and `cursor`; what is created by `POST /runs` may have an
`Idempotency-Key`; edits need `If-Match`."""


@dataclass(frozen=True, slots=True)
class Options:
    """What one process serves. ``public``: it can be reached from other machines."""

    url: str
    rules: Rules = field(default_factory=Rules)
    connections: int = SIZE
    public: bool = False
    keyring: KeyRing = field(default_factory=lambda: KeyRing.of(os.environ))
    wrong_schema: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class Made:
    """The application behind its guard, and what its owner ends."""

    asgi: ASGIApp
    app: FastAPI
    pool: Pool
    waiting: Waiting


def make(options: Options) -> Made:
    """The whole application. It opens no connection before the first request."""
    pool = Pool(options.url, size=options.connections, wrong_schema=options.wrong_schema)

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = options.connections
        yield
        app.state.webhooks.close()
        pool.close()

    app = FastAPI(
        title="Suimon",
        version=migrate.package_version(),
        description=_ABOUT,
        openapi_url="/api/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=life,
    )
    app.state.pool, app.state.waiting = pool, Waiting(pool)
    app.state.keyring = options.keyring
    app.state.public, app.state.token = options.public, options.rules.token is not None
    app.state.webhooks = webhooks.Door(options.url, options.keyring, needs_secret=options.public)
    for one in ROUTERS:
        app.include_router(one)
    for kind in (SuimonError, RequestValidationError, HTTPException, psycopg.Error):
        app.add_exception_handler(kind, _refuse)
    return Made(Guard(app, options.rules), app, pool, app.state.waiting)


async def _refuse(request: Request, error: Exception) -> Response:
    made = problems.answer(problems.known(error), request_id.get())
    if made.status_code == 405:
        made.headers["Allow"] = ", ".join(sorted(_methods(request)))
    return made


def _methods(request: Request) -> set[str]:
    """Every method that this address has; the framework names those of one route alone."""
    found: set[str] = set()
    for route in chain.from_iterable(one.routes for one in ROUTERS):
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            found |= route.methods or set()
    return found
