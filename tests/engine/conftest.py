"""Fixtures of the engine tests. A test here that cannot run has failed: a skip would say green without an engine.

Only what an older vLLM does not have yet is skipped there: ``@pytest.mark.needs_release("0.32")``, and before 0.31,
where V2 loads no processors, every test with "v2" in its name or its parameters.

How to test a plugin on the real engine (see ``lpkit_conformance.engine`` for the classes):

    def test_something(engines):                      # or start EngineProcess yourself, as a module fixture
        engine = engines("v2", ["my_plugin:MyProcessor"], sys_path=[folder_of_my_plugin])
        assert engine.info["runner"] == "v2"          # the class vLLM really runs is in info["runner_class"]
        answers = engine.generate([
            Ask("on", (1, 2, 3), {"max_tokens": 5, "temperature": 0.0, "extra_args": {"my_arg": 1}}, logits=True),
            Ask("off", (1, 2, 3), {"max_tokens": 5, "temperature": 0.0}, at=2, logits=True),
        ])
        answers["on"].token_ids, answers["on"].rows   # [5, vocab] raw logits, before any processor
        answers["on"].error                           # "ValueError: ..." when the engine refused it

Three ways to load: an entry point (``installed`` below, or any folder with a dist-info, in ``sys_path``), an FQCN
(``"module:Class"``), a class object (``ClassRef("module:Class")``). Settings go in ``EngineSettings(runner, ...)``:
``logprobs_mode="processed_logits"`` shows rows after all processors; ``max_num_batched_tokens=32`` gives chunked
prefill; ``num_gpu_blocks_override=9, block_size=32, max_model_len=96`` gives preemption. Never give a
request a ``seed`` together with chunked prefill: that kills a V1 engine on a CPU. An engine costs about 10 s,
``engine.restart(...)`` in the same process about 4 s: share them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from lpkit_conformance.discovery.installed import take_inventory
from lpkit_conformance.discovery.releases import V2_PROCESSORS_SINCE, Release, is_before, parse_release
from lpkit_conformance.engine.process import EngineProcess
from lpkit_conformance.engine.tiny import EngineSettings
from lpkit_conformance.vllm_api.runners import V1, V2, Runner

PROBES = Path(__file__).parent / "probes"
sys.path.insert(0, str(Path(__file__).parent / "helpers"))

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


@pytest.fixture(scope="module")
def engines() -> Iterator[Engines]:
    """``engines(runner or settings, processors, sys_path=..., env=...)``: an engine that ends with the module.

    ``tests/engine/probes`` is on the child's path too.
    """
    running: list[EngineProcess] = []

    def start(
        settings: str | EngineSettings,
        processors: Sequence[Any] = (),
        sys_path: Sequence[Path] = (),
        **options: Any,
    ) -> EngineProcess:
        if isinstance(settings, str):
            settings = EngineSettings(settings)  # type: ignore[arg-type]
        engine = EngineProcess(settings, processors, sys_path=[PROBES, *sys_path], **options)
        running.append(engine)
        return engine

    yield start
    for engine in running:
        engine.close()


@pytest.fixture
def installed(tmp_path: Path) -> Callable[..., Path]:
    """``installed("my-plugin", my_entry="module:Class")``: a folder that makes ``sys_path`` look pip-installed."""

    def install(distribution: str, **entry_points: str) -> Path:
        folder = tmp_path / f"{distribution.replace('-', '_')}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n", encoding="utf-8"
        )
        lines = [f"{name} = {target}\n" for name, target in entry_points.items()]
        (folder / "entry_points.txt").write_text("[vllm.logits_processors]\n" + "".join(lines), encoding="utf-8")
        return tmp_path

    return install
