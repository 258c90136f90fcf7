"""Every reference plugin in transformers' own ``generate``: against its rules where it has them, else against V2."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lpkit
import lpkit.export
import pytest
import torch
import transformers
from lpkit_allowed_tokens import AllowedTokens
from lpkit_forced_sequence import ForcedSequence
from lpkit_logit_bias import LogitBias
from lpkit_min_p import MinP
from lpkit_no_repeat_ngram import NoRepeatNgram
from lpkit_penalties import Penalties
from lpkit_target_token import TargetToken
from sdk_hosts import V2Host, params
from shipped import PLUGINS, load, settings

VOCAB = 512
FEW = list(range(40, 52))

MODES: dict[str, dict[str, Any]] = {
    "greedy": {"do_sample": False},
    "beams": {"do_sample": False, "num_beams": 3},
    "sampled": {"do_sample": True, "temperature": 0.7},
    "sampled beams": {"do_sample": True, "num_beams": 3, "num_return_sequences": 2, "temperature": 1.3},
}


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=VOCAB, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2
    )
    model = transformers.LlamaForCausalLM(config).eval()
    model.lm_head.weight.data *= 20  # logits of some size, as of a model that was trained
    model.generation_config.pad_token_id = 0
    model.generation_config.eos_token_id = None
    return model


def only(ids: list[int]) -> dict[str, Any]:
    return {"prefix_allowed_tokens_fn": lambda batch, text: ids}


THEIRS: dict[str, tuple[Any, dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    # our class, its arguments, their option, and what both are given besides
    "repetition penalty": (Penalties, {"repetition": 1.7}, {"repetition_penalty": 1.7}, only(FEW)),
    # Theirs looks at the prompt, too: its token never comes again.
    "no repeated n-gram": (NoRepeatNgram, {"size": 2}, {"no_repeat_ngram_size": 2}, only(FEW[:5])),
    "allowed tokens": (AllowedTokens, {"ids": FEW}, only(FEW), {}),
    "target token": (TargetToken, {"token": 7}, only([7]), {}),
    "logit bias": (LogitBias, {"ids": [7, 0], "values": [5.0, -9.0]}, {"sequence_bias": [[[7], 5.0], [[0], -9.0]]}, {}),
    "forced first token": (ForcedSequence, {"ids": [9]}, {"forced_bos_token_id": 9}, {}),
    "min-p": (MinP, {"threshold": 0.2}, {"min_p": 0.2}, {}),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rule", THEIRS)
def test_it_generates_what_transformers_own_rule_does(model: Any, rule: str, mode: str) -> None:
    cls, arguments, theirs, shared = THEIRS[rule]
    prompts = torch.tensor([[5], [6]])
    options = {"max_new_tokens": 12, "top_k": 0, **MODES[mode], **shared}
    if rule == "min-p" and not options["do_sample"]:
        theirs = {}  # neither does anything to a greedy request
    torch.manual_seed(1)
    expected = model.generate(prompts, **options, **theirs)
    torch.manual_seed(1)
    ours = lpkit.export.transformers(cls, arguments)
    assert torch.equal(model.generate(prompts, logits_processor=[ours], **options), expected)
    if theirs:
        torch.manual_seed(1)
        assert not torch.equal(model.generate(prompts, **options), expected)


class Before(transformers.LogitsProcessor):
    """Writes down what it is given."""

    def __init__(self) -> None:
        self.steps: list[tuple[torch.Tensor, torch.Tensor]] = []

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        self.steps.append((input_ids.clone(), scores.clone()))
        return scores


@pytest.mark.parametrize("mode", ["sampled", pytest.param("sampled beams", marks=pytest.mark.broad)])
@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda path: path.name)
def test_it_edits_the_scores_as_on_v2(model: Any, plugin: Path, mode: str, caplog: pytest.LogCaptureFixture) -> None:
    cls, cases = load(plugin), settings(plugin).cases[:2]
    # With three tokens a text soon repeats itself: some rules wait for that.
    assert edits_as_on_v2(model, cls, cases, MODES[mode]) or edits_as_on_v2(
        model, cls, cases, MODES[mode] | only(FEW[:3])
    )
    assert not caplog.records


def edits_as_on_v2(model: Any, cls: type[Any], cases: Sequence[dict[str, Any]], options: dict[str, Any]) -> bool:
    """Hold that every step is edited as on V2; return true if any was."""
    arguments = [cases[0]["extra_args"], None, cases[1]["extra_args"]]
    texts = [[30, *case.get("prompt_token_ids", []), *case.get("output_token_ids", [31])[:-1]] for case in cases]
    texts.insert(1, [32])
    width = max(map(len, texts))
    prompts = torch.tensor([[0] * (width - len(text)) + text for text in texts])
    before, after = Before(), Before()
    ours = lpkit.export.transformers(cls, arguments)
    torch.manual_seed(2)
    model.generate(
        prompts,
        attention_mask=(prompts != 0).long(),
        logits_processor=[before, ours, after],
        max_new_tokens=10,
        top_k=0,
        eos_token_id=50,
        **options,
    )
    acted = False
    for (ids, logits), (_, edited) in zip(before.steps, after.steps, strict=True):
        expected = on_v2(cls, arguments, prompts, ids, logits, options["temperature"])
        torch.testing.assert_close(edited, expected, rtol=1e-5, atol=1e-5)
        acted |= bool((edited != logits).any())
        middle = slice(len(ids) // 3, 2 * len(ids) // 3)
        assert torch.equal(edited[middle], logits[middle])
    return acted


def on_v2(
    cls: type[Any],
    arguments: list[dict[str, Any] | None],
    prompts: torch.Tensor,
    ids: torch.Tensor,
    logits: torch.Tensor,
    temperature: float,
) -> torch.Tensor:
    """The rows of one step in slots of the V2 runner, all of them just arrived."""
    host = V2Host(cls, max_num_reqs=len(ids), vocab_size=VOCAB)
    each = len(ids) // len(prompts)
    for slot, text in enumerate(ids.tolist()):
        prompt = [token for token in prompts[slot // each].tolist() if token]
        host.add(slot, params(temperature, **(arguments[slot // each] or {})), prompt, text[prompts.shape[1] :])
    return host.apply(logits.clone(), host.context(range(len(ids))))
