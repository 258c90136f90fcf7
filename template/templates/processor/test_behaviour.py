"""The rule: each output token raises the logit of `wrap_up_token` by `wrap_up_step`.

Engines of `lpkit.runtime` call the processor as vLLM's two runners do, without a model.
"""

{% include "behaviour.py" %}

def test_nothing_changes_before_the_first_output_token(engine: Any) -> None:
    assert not change(engine, {"wrap_up_token": 7}, written=[]).any()


def test_the_token_rises_by_one_step_per_output_token(engine: Any) -> None:
    expected = torch.zeros(VOCAB)
    expected[0] = 2 * 0.5  # token 0 is a token like any other
    torch.testing.assert_close(change(engine, {"wrap_up_token": 0, "wrap_up_step": 0.5}, written=[4, 5]), expected)


def test_a_request_that_does_not_ask_is_unaffected(engine: Any) -> None:
    assert not change(engine, {"other_plugins_key": 1}, written=[4, 5, 6, 4, 5]).any()


@pytest.mark.parametrize(
    "extra_args",
    [
        {"wrap_up_token": -1},
        {"wrap_up_token": "seven"},
        {"wrap_up_step": 3},
        {"wrap_up_token": 7, "wrap_up_step": 0},
        {"wrap_up_tokens": 7},
    ],
)
def test_bad_parameters_are_refused_before_the_request_starts(engine: Any, extra_args: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="wrap_up_"):
        engine.add(Request("mine", SamplingParams(extra_args=extra_args), PROMPT))
