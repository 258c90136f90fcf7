"""The rule: each of the last `recent_window` output tokens is lowered by `recent_penalty`, once.

Engines of `lpkit.runtime` call the processor as vLLM's two runners do, without a model.
"""

{% include "behaviour.py" %}

def test_recent_tokens_are_lowered_once_each(engine: Any) -> None:
    expected = torch.zeros(VOCAB)
    expected[[4, 5]] = -1.5
    torch.testing.assert_close(change(engine, {"recent_penalty": 1.5}, written=[4, 5, 4]), expected)


def test_tokens_before_the_window_are_forgotten(engine: Any) -> None:
    expected = torch.zeros(VOCAB)
    expected[[5, 6]] = -1.0
    args = {"recent_penalty": 1.0, "recent_window": 2}
    torch.testing.assert_close(change(engine, args, written=[4, 5, 6]), expected)


def test_the_prompt_does_not_count(engine: Any) -> None:
    assert not change(engine, {"recent_penalty": 1.0}, written=[]).any()


def test_a_request_that_does_not_ask_is_unaffected(engine: Any) -> None:
    assert not change(engine, {"other_plugins_key": 1}, written=[4, 5, 6]).any()


@pytest.mark.parametrize(
    "extra_args",
    [
        {"recent_penalty": 0},
        {"recent_penalty": "strong"},
        {"recent_window": 4},
        {"recent_penalty": 1.0, "recent_window": 0},
        {"recent_penality": 1.0},
    ],
)
def test_bad_parameters_are_refused_before_the_request_starts(engine: Any, extra_args: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="recent_"):
        engine.add(Request("mine", SamplingParams(extra_args=extra_args), PROMPT))
