"""Parameters of llama.cpp and koboldcpp become the steps that do the same."""

from __future__ import annotations

from typing import Any

import pytest
from lpkit.rules.document import RULES
from lpkit.rules.policy import Policy
from lpkit.rules.presets import BREAKERS, NAMES, from_preset


@pytest.mark.parametrize(
    ("given", "steps"),
    [
        ({"min_p": 0.05}, [{"rule": "min_p", "threshold": 0.05}]),
        ({"min_p": 0, "typical_p": 1.0, "repeat_penalty": 1.0, "dry_multiplier": 0, "top_n_sigma": -1}, []),
        (
            {"xtc_threshold": 0.1, "dry_base": 1.75},  # neither acts without its switch
            [],
        ),
        (
            {"min_p": 0.1, "dry_multiplier": 0.8, "dry_base": 2, "repeat_penalty": 1.1, "xtc_probability": 0.5},
            [
                {"rule": "penalties", "repetition": 1.1},
                {"rule": "dry", "multiplier": 0.8, "base": 2, "breakers": list(BREAKERS)},
                {"rule": "min_p", "threshold": 0.1},
                {"rule": "xtc", "probability": 0.5},
            ],
        ),
        (
            {"samplers": ["min_p", "top_k", "dry"], "min_p": 0.1, "dry_multiplier": 1, "dry_sequence_breakers": [4]},
            [{"rule": "min_p", "threshold": 0.1}, {"rule": "dry", "multiplier": 1, "breakers": [4]}],
        ),
        ({"logit_bias": [[5, -1.5], [6, 2]]}, [{"rule": "bias", "ids": [5, 6], "values": [-1.5, 2.0]}]),
        ({"dry_multiplier": 1, "dry_penalty_last_n": 0, "repeat_penalty": 1.5, "samplers": ["min_p"]}, []),
        ({"banned_tokens": [4], "banned_strings": ["a b"]}, [{"rule": "ban", "phrases": [4, "a b"]}]),
        (
            {"logit_bias": {"5": False, "6": 1.0}},
            [{"rule": "bias", "ids": [6], "values": [1.0]}, {"rule": "ban", "phrases": [5]}],
        ),
        ({"tfs": 0.9, "top_a": 0.2}, [{"rule": "top_a", "threshold": 0.2}, {"rule": "tail_free", "threshold": 0.9}]),
    ],
)
def test_parameters_become_steps_in_the_order_of_the_other_engine(given: Any, steps: Any) -> None:
    assert from_preset(given) == steps
    assert len(Policy().steps({"rules": {"preset": given}})) == len(steps)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"mirostat": 2}, "rules/preset/mirostat: no rule: its state depends on earlier logits"),
        ({"top_k": 40}, "rules/preset/top_k: a parameter of the request itself"),
        ({"minp": 0.1}, "rules/preset/minp: unknown; did you mean 'min_p'"),
        ({"samplers": ["min-p"]}, "rules/preset/samplers: 'min-p' unknown; did you mean 'min_p'"),
        ({"samplers": "min_p"}, "rules/preset/samplers: a list of names"),
        ({"samplers": [["min_p"]]}, "rules/preset/samplers: a list of names"),
        ({"min_p": 5, "dry_multiplier": 0.8}, "rules/preset: as the rule min_p: threshold: Input should be less than"),
        ({"logit_bias": [[1e999, 1]]}, "Infinity is not a JSON number|pairs of a token id"),
        ({"logit_bias": [[5.9, 1]]}, "rules/preset/logit_bias: pairs"),
        ({5: 1}, "rules/preset/5: unknown"),
        ({"min_p": "much"}, "rules/preset/min_p: 'much' is not a number"),
        ({"logit_bias": [1]}, "rules/preset/logit_bias: pairs"),
        ([], "rules/preset: an object is needed"),
    ],
)
def test_what_has_no_equivalent_is_refused_with_the_reason(given: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Policy().steps({"rules": {"preset": given}})


@pytest.mark.parametrize("name", NAMES)
def test_every_name_leads_to_a_parameter_of_its_rule(name: str) -> None:
    rule, parameter, _ = NAMES[name]
    assert parameter in (*RULES[rule].keys, "pairs")
