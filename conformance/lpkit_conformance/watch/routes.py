"""``/lpkit/metrics``, ``/lpkit/violations`` and ``/lpkit/rules`` in vLLM's API server, from the run's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lpkit_conformance.watch.numbers import prometheus, rules, violations
from lpkit_conformance.watch.run_directory import read_numbers

METRICS, VIOLATIONS, RULES = "/lpkit/metrics", "/lpkit/violations", "/lpkit/rules"


class Routes:
    """An endpoint plugin as vLLM defines it: ``name``, ``required_tasks`` and two methods."""

    name = "lpkit_watch"
    required_tasks = None

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def attach_router(self, app: Any) -> None:
        """Add the routes to the FastAPI application."""
        from fastapi.responses import JSONResponse, PlainTextResponse

        # Plain functions run in a thread pool: a slow disk blocks no request.
        def metrics() -> Any:
            return PlainTextResponse(prometheus(read_numbers(self._folder)), media_type="text/plain; version=0.0.4")

        def evidence() -> Any:
            return JSONResponse(violations(read_numbers(self._folder)))

        def receipts() -> Any:
            return JSONResponse(rules(read_numbers(self._folder)))

        # FastAPI must not take the return annotations for response models.
        for path, answer in ((METRICS, metrics), (VIOLATIONS, evidence), (RULES, receipts)):
            app.add_api_route(path, answer, methods=["GET"], response_model=None, include_in_schema=False)

    async def init_state(self, engine_client: Any, state: Any, args: Any) -> None:
        """Do nothing: the routes need no engine."""
