"""The rule, as requests see it: write here what each parameter does to the logits.

Engines of `lpkit.runtime` call the processor as vLLM's two runners do, without a model.
"""

{% include "behaviour.py" %}

@pytest.mark.xfail(reason="write the rule in processor.py, say here what it changes, and remove this line")
def test_the_rule(engine: Any) -> None:
    assert change(engine, {"{{ cookiecutter.package_name }}_strength": 1.0}, written=[4, 5, 6]).any()


def test_a_request_that_does_not_ask_is_unaffected(engine: Any) -> None:
    assert not change(engine, {"other_plugins_key": 1}, written=[4, 5, 6]).any()


@pytest.mark.parametrize("value", [0, "strong"])
def test_bad_parameters_are_refused_before_the_request_starts(engine: Any, value: Any) -> None:
    params = SamplingParams(extra_args={"{{ cookiecutter.package_name }}_strength": value})
    with pytest.raises(ValueError, match="{{ cookiecutter.package_name }}_strength"):
        engine.add(Request("mine", params, PROMPT))
