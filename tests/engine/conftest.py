"""Fixtures of the engine tests. A test here that cannot run has failed: a skip would say green without an engine.

Only what an older vLLM does not have yet is skipped there: ``@pytest.mark.needs_release("0.32")``, and before 0.31,
where V2 loads no processors, every test with "v2" in its name or its parameters.

How to test a plugin on the real engine (see ``lpkit_conformance.engine`` for the classes):

    def test_something(engines):
        engine = engines("v2", ["my_plugin:MyProcessor"], [folder_of_my_plugin])
        answers = engine.generate([
            Ask("on", (1, 2, 3), {"max_tokens": 5, "temperature": 0.0, "extra_args": {"my_arg": 1}}, logits=True),
            Ask("off", (1, 2, 3), {"max_tokens": 5, "temperature": 0.0}, at=2, logits=True),
        ])
        answers["on"].token_ids, answers["on"].rows   # [5, vocab] raw logits, before any processor
        answers["on"].error                           # "ValueError: ..." when the engine refused it

Three ways to load: an entry point (``installed`` below, or any folder with a dist-info), an FQCN (``"module:Class"``),
a class object. Settings go in ``EngineSettings(runner, ...)``: ``logprobs_mode="processed_logits"`` shows rows after
all processors; ``max_num_batched_tokens=32`` gives chunked prefill; ``num_gpu_blocks_override=9, block_size=32,
max_model_len=96`` gives preemption. Never give a request a ``seed`` together with chunked prefill: that kills a V1
engine on a CPU. The first process of a runner costs 9 s of a core, each engine 1 s, and the same engine again nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any
from unittest import mock

import pytest
from lpkit_conformance.discovery.installed import take_inventory
from lpkit_conformance.engine.process import EngineProcess
from lpkit_conformance.engine.tiny import RUNNER_MODULES, EngineSettings
from lpkit_conformance.processes import supervise
from lpkit_conformance.vllm_api.releases import V2_PROCESSORS_SINCE, Release, is_before, parse_release
from lpkit_conformance.vllm_api.runners import V1, V2, Runner

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "helpers"), str(HERE / "probes"), *map(str, HERE.parents[1].glob("reference_plugins/*/src"))]

NEWER = "needs vLLM"

Engines = Callable[..., EngineProcess]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    return _no_skip(report)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Any:
    report = yield
    return _no_skip(report)


def _no_skip(report: Any) -> Any:
    if report.skipped and not hasattr(report, "wasxfail") and NEWER not in str(report.longrepr):
        report.outcome = "failed"
        report.longrepr = f"an engine test must run, but was skipped: {report.longrepr}"
    return report


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    for item in items:
        needs = [mark.args[0] for mark in item.iter_markers("needs_release")]
        if V2 in item.name and item.get_closest_marker("engine"):
            needs.append("0.31")
        for release in needs:
            if is_before(_release(), parse_release(release)):
                item.add_marker(pytest.mark.skip(reason=f"{NEWER} {release}"))


@cache
def _release() -> Release | None:
    engine = take_inventory().engine
    return parse_release(engine.version) if engine else None


@pytest.fixture(scope="session")
def release() -> Release | None:
    """Of the installed vLLM."""
    return _release()


@pytest.fixture(scope="session")
def runners() -> tuple[Runner, ...]:
    """Runners of the installed vLLM that load processors."""
    return (V1,) if is_before(_release(), V2_PROCESSORS_SINCE) else (V1, V2)


@pytest.fixture(scope="session", autouse=True)
def forks() -> Iterator[None]:
    """Fork the processes of engines from one of their runner that has imported vLLM."""
    make, tiny, one_at_a_time = EngineProcess.__init__, "lpkit_conformance.engine.tiny", Lock()

    @cache
    def nursery(runner: Runner) -> Any:
        from forked import Nursery  # not in the copy that test_no_skips.py makes of this file

        imports = (f"{tiny}:import_vllm",), ("importlib:import_module", RUNNER_MODULES[runner])
        return stack.enter_context(closing(Nursery((f"{tiny}:prepare", runner), *imports)))

    def forked(self: EngineProcess, runner: Runner, **given: Any) -> None:
        born_of = nursery(runner)
        with one_at_a_time, mock.patch.object(supervise, "subprocess", born_of):  # a check starts both side by side
            make(self, runner, **given)

    with ExitStack() as stack, mock.patch.object(EngineProcess, "__init__", forked):
        yield


@pytest.fixture(scope="session")
def processes() -> Iterator[Callable[[Runner], EngineProcess]]:
    """``processes(runner)``: a process of this runner in which no fixture starts an engine."""
    with ExitStack() as stack:
        yield cache(lambda runner: stack.enter_context(EngineProcess(runner)))


class KeptEngine(EngineProcess):
    """``serving``: what its engine was started with; None if a test started another."""

    serving: Any = None

    def start(self, settings: EngineSettings, logits_processors: Sequence[str | type] = ()) -> None:
        self.serving = None
        super().start(settings, logits_processors)

    def close(self) -> None:
        self.serving = None
        super().close()


@pytest.fixture(scope="session")
def engines() -> Iterator[Engines]:
    """``engines(runner or settings, processors, folders)``: an engine; if the last one was started so, that one.

    Plugins that are installed in ``folders`` are installed there, and modules in them can be imported.
    """
    kept: dict[Runner, KeptEngine] = {}

    def start(
        settings: Runner | EngineSettings, processors: Sequence[str | type] = (), folders: Sequence[Path] = ()
    ) -> EngineProcess:
        settings = settings if isinstance(settings, EngineSettings) else EngineSettings(settings)
        runner, wanted = settings.runner, (settings, tuple(processors), tuple(folders))
        if runner not in kept or kept[runner].serving != wanted:
            if runner in kept:
                kept[runner].close()
            engine = kept[runner] = KeptEngine(runner, sys_path=folders)
            engine.start(settings, processors)
            assert engine.inspect("plugin_probes:is_async") == bool(settings.extra.get("async_scheduling"))
            engine.serving = wanted
        return kept[runner]

    yield start
    for engine in kept.values():
        engine.close()


@pytest.fixture
def installed(tmp_path: Path) -> Callable[..., Path]:
    """``installed("my-plugin", my_entry="module:Class")``: a folder that makes ``sys_path`` look pip-installed."""
    from site_folder import Site  # not in the copy that test_no_skips.py makes of this file

    def install(distribution: str, **entry_points: str) -> Path:
        lines = (f"{name} = {target}" for name, target in entry_points.items())
        Site(tmp_path).dist(distribution, entry_points="\n".join(lines))
        return tmp_path

    return install
