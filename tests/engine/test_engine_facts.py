"""Surprising behaviour of the real engine; our hosts and documents rely on each of these facts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from engine_probes import Both, V2Neighbour, V2Probe
from lpkit_conformance.checks.engine.asks import Ask
from lpkit_conformance.engine.process import EngineProcess, RemoteError
from lpkit_conformance.engine.tiny import EngineSettings, import_vllm
from lpkit_conformance.vllm_api.releases import Release, is_before, parse_release

pytestmark = pytest.mark.engine

CLASSES = {
    "v1": "vllm.v1.worker.cpu_model_runner.CPUModelRunner",
    "v2": "vllm.v1.worker.cpu.model_runner.CPUModelRunner",
}
GREEDY = {"max_tokens": 4, "temperature": 0.0}


@pytest.fixture
def v1(engines) -> EngineProcess:
    return engines("v1", ["engine_probes:V1Probe"])


@pytest.fixture
def v2(engines) -> EngineProcess:
    return engines("v2", [V2Probe])


def _events(engine: EngineProcess) -> list[Any]:
    return engine.inspect("engine_probes:take_events")


def _named(events: list[Any], kind: str) -> list[Any]:
    return [event for event in events if event[0] == kind]


# Both runners


@pytest.mark.needs_release("0.32")
def test_true_in_vllm_xargs_arrives_as_1() -> None:
    """LP106 relies on it: the field holds texts, numbers and lists of them."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    asked = ChatCompletionRequest(
        messages=[{"role": "user", "content": "x"}], vllm_xargs={"on": True, "all": [True, 2]}
    )
    assert repr(asked.vllm_xargs) == "{'on': 1, 'all': [1, 2]}"


@pytest.mark.needs_release("0.31")
def test_each_engine_runs_the_runner_it_was_asked_for(
    v1: EngineProcess, v2: EngineProcess, release: Release | None
) -> None:
    for name, engine in (("v1", v1), ("v2", v2)):
        assert engine.runner_class == CLASSES[name]
        assert parse_release(engine.call(import_vllm)) == release


@pytest.mark.needs_release("0.32")
def test_a_server_answers_400_to_errors_of_bad_values_and_500_to_others() -> None:
    from vllm.entrypoints.serve.exception_handling.error_response import create_error_response

    kinds = (ValueError, TypeError, OverflowError, KeyError, AttributeError)
    codes = [create_error_response(kind("told")).error.code for kind in kinds]
    assert codes == [400, 400, 400, 500, 500]


@pytest.mark.needs_release("0.31")
def test_raw_rows_decide_greedy_tokens_and_agree_between_the_runners(v1: EngineProcess, v2: EngineProcess) -> None:
    asks = [Ask(f"g{n}", tuple(range(10, 13 + n)), {**GREEDY, "max_tokens": 6}, at=n, logits=True) for n in range(4)]
    ours, theirs = v1.generate(asks), v2.generate(asks)
    for name, answer in ours.items():
        assert answer.rows.shape == (6, 512)
        assert np.isfinite(answer.rows).all()
        assert answer.rows.argmax(-1).tolist() == answer.token_ids == theirs[name].token_ids
        np.testing.assert_allclose(answer.rows, theirs[name].rows, atol=1e-4)


@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_no_processor_is_called_while_memory_is_measured(request, runner: str) -> None:
    """So no peak of a processor is counted there, and none can compile there: docs/explanation/concepts.md says so."""
    engine: EngineProcess = request.getfixturevalue(runner)
    _events(engine)
    engine.start(EngineSettings(runner), ["engine_probes:V1Probe" if runner == "v1" else V2Probe])
    assert "init" in _events(engine)
    assert engine.inspect("engine_probes:profile_memory") > 0
    assert _events(engine) == []
    engine.generate([Ask("real", (1, 2, 3), {**GREEDY, "extra_args": {"probe": 1}})])
    assert _named(_events(engine), "apply")


@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_a_request_that_validate_params_refuses_leaves_the_others_alone(request, runner: str) -> None:
    engine: EngineProcess = request.getfixturevalue(runner)
    answers = engine.generate(
        [Ask("good", (1, 2), GREEDY), Ask("bad", (1, 2), {**GREEDY, "extra_args": {"refuse": True}})]
    )
    assert len(answers["good"].token_ids) == 4
    assert "the probe refuses this request" in (answers["bad"].error or "")


@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_a_class_that_is_installed_and_passed_twice_runs_three_times(engines, installed, runner: str) -> None:
    folder = installed("both-runners", both="engine_probes:Both")
    engine = engines(runner, ["engine_probes:Both", Both], [folder])
    assert _events(engine) == [("init", 3 if runner == "v1" else 2)] * 3
    engine.generate([Ask("a", (1, 2), {"max_tokens": 1, "temperature": 0.0})])
    assert _events(engine) == ["apply"] * 3


# V1


def test_v1_tells_processors_about_steps_without_changes_and_about_the_end(v1: EngineProcess) -> None:
    _events(v1)
    v1.generate([Ask("a", (7, 8, 9), GREEDY)])
    assert _events(v1) == [
        ("update", 1, [], [(0, [7, 8, 9], [])]),
        ("apply", (1, 512)),
        ("update", None),
        ("apply", (1, 512)),
        ("update", None),
        ("apply", (1, 512)),
        ("update", None),
        ("apply", (1, 512)),
        ("update", 0, [0], []),  # no token is scheduled in this step, so no apply follows
    ]


def test_v1_sees_a_reused_request_id_as_a_replacement(v1: EngineProcess) -> None:
    ask = Ask("twice", (3, 4), {"max_tokens": 6, "temperature": 0.0})
    update = _named(v1.inspect("engine_probes:abort_and_send_again", ask), "update")[0]
    assert update == ("update", 1, [], [(0, [3, 4], [])])


def test_v1_samples_partial_prefills_with_an_empty_output_list(v1: EngineProcess) -> None:
    v1.start(EngineSettings("v1", max_num_batched_tokens=32), ["engine_probes:V1Probe"])
    _events(v1)
    answer = v1.generate([Ask("long", tuple(range(70)), {"max_tokens": 1, "temperature": 0.0})])["long"]
    assert len(answer.token_ids) == 1
    assert len(_named(_events(v1), "apply")) == 3


def test_v1_skips_invariant_processors_only_when_every_request_is_greedy(v1: EngineProcess) -> None:
    _events(v1)
    v1.start(EngineSettings("v1"), ["engine_probes:V1InvariantProbe"])
    assert _events(v1) == ["init", "invariant?"]
    v1.generate([Ask("a", (1, 2), GREEDY), Ask("b", (1, 2), GREEDY)])
    assert not _named(_events(v1), "apply")
    v1.generate([Ask("a", (1, 2), GREEDY), Ask("b", (1, 2), {**GREEDY, "temperature": 1.0})])
    assert _named(_events(v1), "apply") == [("apply", (2, 512))] * 4


def test_v1_gives_all_processors_the_same_configuration_and_the_same_lists_of_a_request(v1: EngineProcess) -> None:
    """The SDK relies on this to copy data once for all of an engine's processors."""
    v1.start(EngineSettings("v1"), ["engine_probes:V1Neighbour"] * 3)
    _events(v1)
    v1.generate([Ask("a", (1, 2), GREEDY), Ask("b", (1, 2, 3), GREEDY, at=2)])
    given = [event[1:] for event in _named(_events(v1), "given")]
    assert len({who for who, _, _ in given}) == 3
    assert len({config for _, config, _ in given}) == 1
    of_each = {who: [lists for other, _, lists in given if other == who] for who, _, _ in given}
    first, *others = of_each.values()
    assert len(first) == 2
    assert others == [first] * 2


def test_v1_dies_on_a_cpu_when_a_seeded_request_is_partially_prefilled(v1: EngineProcess) -> None:
    """The engine rewinds the request's generator, which a CPU generator cannot: no workload of ours has seeds."""
    v1.start(EngineSettings("v1", max_num_batched_tokens=32))
    seeded = {"max_tokens": 1, "temperature": 1.0, "seed": 1}
    with pytest.raises(RemoteError, match="does not use offset"):
        v1.generate([Ask("long", tuple(range(70)), seeded)])
    v1.start(EngineSettings("v1"), ["engine_probes:V1Probe"])
    assert len(v1.generate([Ask("a", (1, 2), GREEDY)])["a"].token_ids) == 4


# V2


def test_v2_flushes_every_step_and_frees_without_a_word(v2: EngineProcess) -> None:
    _events(v2)
    v2.generate([Ask("a", (7, 8, 9), {**GREEDY, "extra_args": {"probe": 1}})])
    kinds = [event[0] for event in _events(v2)]
    assert kinds == ["add", *["flush", "apply"] * 4, "flush"]


def test_v2_rebinds_device_lengths_when_requests_enter(v2: EngineProcess) -> None:
    _events(v2)
    v2.generate([Ask(f"a{n}", (7, 8, 9), GREEDY, at=n) for n in range(4)])
    pointers = {pointer for kind, pointer, *_ in _named(_events(v2), "flush")}
    assert len(pointers) > 1


def test_v2_skips_apply_when_nobody_needs_it_else_covers_declined_rows(v2: EngineProcess) -> None:
    _events(v2)
    v2.generate([Ask("a", (1, 2), GREEDY), Ask("b", (1, 2), GREEDY)])
    assert not _named(_events(v2), "apply")
    v2.generate([Ask("a", (1, 2), GREEDY), Ask("b", (1, 2), {**GREEDY, "temperature": 0.7})])
    assert [event[1] for event in _named(_events(v2), "apply")] == [(2, 512)] * 4
    v2.generate([Ask("a", (1, 2), GREEDY), Ask("b", (1, 2), {**GREEDY, "temperature": 1.0})])
    assert not _named(_events(v2), "apply")


def test_v2_context_types(v2: EngineProcess, release: Release | None) -> None:
    mapping = "torch.int32" if is_before(release, (0, 32, 0)) else "torch.int64"
    _events(v2)
    v2.generate([Ask("a", (1, 2), {**GREEDY, "extra_args": {"probe": 1}})])
    dtypes = _named(_events(v2), "apply")[0][2]
    assert dtypes == {
        "expanded_idx_mapping": mapping,
        "idx_mapping": mapping,
        "expanded_local_pos": "torch.int32",
        "input_ids": "torch.int32",
        "pos": "torch.int64",
    }


def test_v2_gives_all_processors_the_same_buffers_and_the_same_context_of_a_step_which_it_then_drops(
    v2: EngineProcess,
) -> None:
    """The SDK relies on this to find data once for all of an engine's processors."""
    v2.start(EngineSettings("v2"), [V2Neighbour] * 3)
    _events(v2)
    v2.generate([Ask("a", (1, 2), {**GREEDY, "extra_args": {"probe": 1}})])
    events = _events(v2)
    given = [event[1:] for event in _named(events, "given")]
    steps = [given[start : start + 3] for start in range(0, len(given), 3)]
    assert len(steps) == 4
    assert len({states for _, states, _ in given}) == 1
    for step in steps:
        assert len({who for who, _, _ in step}) == 3
        assert len({context for _, _, context in step}) == 1
    assert [count for _, count in _named(events, "kept")] == [0, 0, 0, 0]
