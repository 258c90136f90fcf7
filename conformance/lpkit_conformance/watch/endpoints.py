"""``/lpkit/metrics`` and ``/lpkit/violations`` in vLLM's API server; the numbers are read from the run's folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from lpkit_conformance.watch.metrics import prometheus, violations
from lpkit_conformance.watch.run_directory import RUN, read_numbers

METRICS, VIOLATIONS = "/lpkit/metrics", "/lpkit/violations"


class Endpoints:
    """What vLLM expects of an endpoint plugin.

    Attributes:
        name: as in ``VLLM_PLUGINS``.
        required_tasks: none: it serves beside any model.
    """

    name = "lpkit_watch"
    required_tasks = None

    def attach_router(self, app: Any) -> None:
        """Add the routes to the FastAPI application."""
        from fastapi.responses import JSONResponse, PlainTextResponse

        # Not coroutines: a slow disk may block a thread of the pool, but no request.
        def metrics() -> Any:
            return PlainTextResponse(prometheus(_numbers()), media_type="text/plain; version=0.0.4")

        def found() -> Any:
            return JSONResponse(violations(_numbers()))

        # Their return annotations are not models of a response.
        app.add_api_route(METRICS, metrics, methods=["GET"], response_model=None, include_in_schema=False)
        app.add_api_route(VIOLATIONS, found, methods=["GET"], response_model=None, include_in_schema=False)

    async def init_state(self, engine_client: Any, state: Any, args: Any) -> None:
        """There is none: the engine is not asked for anything."""


def _numbers() -> dict[str, dict[str, Any]]:
    folder = os.environ.get(RUN)
    return read_numbers(Path(folder)) if folder else {}
