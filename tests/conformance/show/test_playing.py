"""Results of ``lpkit show``: the stages' numbers, the reply without processors, and who is to blame."""

from __future__ import annotations

import json
import math
from typing import Any

import lpkit
import pytest
import torch
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.show.model import Toy
from lpkit_conformance.show.playing import Lockstep, Processor, ShownRequest
from lpkit_conformance.show.results import Show

MODEL = Toy()


class Harms(lpkit.LogitsProcessor):
    """Bans a token at one step, or takes its probability there."""

    history = "length"

    class Params(lpkit.Params):
        harm_at: int
        harm_token: int
        harm_by: float = -math.inf

    at = lpkit.column(torch.int32)
    token = lpkit.column(torch.int64)
    by = lpkit.column(torch.float32)

    def admit(self, request: lpkit.Request[Any]) -> bool:
        given = request.params
        self.at[request.slot], self.token[request.slot], self.by[request.slot] = (
            given.harm_at,
            given.harm_token,
            given.harm_by,
        )
        return True

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        there = (rows.output_len == self.at[rows]).unsqueeze(1)
        ids, by = self.token[rows].unsqueeze(1), self.by[rows].unsqueeze(1)
        return torch.where(there, logits.scatter_add(1, ids, by), logits)


class Harmless(lpkit.LogitsProcessor):
    """Bans tokens that are never chosen, at every step."""

    class Params(lpkit.Params):
        harm_at: int

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        logits[:, :2] = -math.inf
        return logits


class Unlike(Harmless):
    def admit(self, request: lpkit.Request[Any]) -> bool:
        return False


class Idle(Harmless):
    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        return logits


class Late(Harmless):
    """Bans a frequent token."""

    stage = "sampling"

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        logits[:, 4] = -math.inf
        return logits


class Empties(lpkit.LogitsProcessor):
    """Leaves no token at the third step."""

    history = "length"

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        return logits.masked_fill_((rows.output_len == 2).unsqueeze(1), -math.inf)


def played(*classes: type, host: str = "v2", count: int = 24, **fields: Any) -> Show:
    """Return what is shown of a request with these processors."""
    fields = {"extra_args": {"harm_at": 3, "harm_token": 4}, "max_tokens": count, "seed": 0, **fields}
    processors = [Processor(cls.__name__, cls) for cls in classes]
    played = Lockstep(ShownRequest(host, MODEL, Case(fields), MODEL.encode(MODEL.prompt), processors))
    steps = tuple(played.steps())
    names = tuple(processor.name for processor in processors)
    return Show(names=names, notes=played.notes(), steps=steps, plain=tuple(map(MODEL.text, played.plain)))


@pytest.mark.parametrize("seed", range(12))
def test_the_receipts_name_the_processor_that_did_harm_and_its_step(seed: int) -> None:
    at, kind = 2 + (7 * seed) % 19, ("bans", "moves", "bans for a greedy request")[seed % 3]
    sampling = {"seed": seed, "temperature": 0.0 if "greedy" in kind else 1.0, "ignore_eos": True}
    needed = MODEL.tokenizer.get_vocab()[played(**sampling).plain[at]]
    args = {"harm_at": at, "harm_token": needed, **({"harm_by": -60.0} if kind == "moves" else {})}
    classes = [Harmless, Harms] if seed % 2 else [Harms, Harmless]
    shown = played(*classes, host=f"v{1 + seed // 2 % 2}", extra_args=args, **sampling)
    culprit, other = sorted(shown.receipts, key=lambda receipt: receipt.name == "Harmless")
    assert (culprit.name, culprit.acted, culprit.first, culprit.last) == ("Harms", 1, at + 1, at + 1)
    assert shown.parted == at + 1 and shown.steps[at].prevented == (kind != "moves")
    assert culprit.chose == (at + 1,) and other.chose == ()
    assert other.moved < 0.01


@pytest.mark.parametrize("host", ["v1", "v2"])
@pytest.mark.parametrize(
    ("cls", "fields", "why"),
    [
        (Unlike, {}, "declined the request at admission"),
        (Harmless, {"extra_args": None}, "does not give its arguments"),
        (Idle, {}, "no effect"),
    ],
)
def test_a_processor_that_never_acts_is_said_to_and_why(host: str, cls: type, fields: dict[str, Any], why: str) -> None:
    shown = played(cls, host=host, count=4, **fields)
    assert shown.receipts[0].said.startswith("never acted: ") and why in shown.receipts[0].said
    assert shown.parted is None and shown.plain == tuple(step.token for step in shown.steps)


def test_a_processor_that_leaves_no_token_is_said_to_and_numbers_stay_finite() -> None:
    shown = played(Empties, count=3, ignore_eos=True)
    assert shown.receipts[0].said.endswith(
        "left nothing to choose from at token 3; changed 1 token, the first is token 3"
    )
    json.dumps(shown.to_json(), allow_nan=False)


def test_a_greedy_request_skips_the_sampling_stage_on_v1() -> None:
    assert "greedy" in played(Late, host="v1", count=3, temperature=0.0).receipts[0].said
    assert played(Late, host="v1", count=3).receipts[0].acted == 3


@pytest.mark.parametrize("host", ["v1", "v2"])
def test_the_last_stage_is_the_distribution_of_the_closed_form(host: str) -> None:
    """Temperature 0.5, then min-p 0.1, then the best four."""
    shown = played(Harmless, host=host, count=12, temperature=0.5, min_p=0.1, top_k=4)
    tokens = MODEL.encode(MODEL.prompt)
    for step in shown.steps:
        raw = MODEL.logits(tokens)
        sharp = (raw.double() * 2).softmax(-1)
        sharp[:2] = 0
        kept = torch.where(sharp >= 0.1 * sharp.max(), sharp, 0.0)
        kept = torch.where(kept >= kept.topk(4).values[-1], kept, 0.0)
        final = kept / kept.sum()
        ids = [MODEL.tokenizer.get_vocab()[text] for text in step.tokens]
        assert step.stages[-1].probabilities == pytest.approx(final[ids].tolist(), abs=2e-5)
        assert step.stages[0].probabilities == pytest.approx(raw.softmax(-1)[ids].tolist(), abs=2e-5)
        assert final[ids[0]] > 0
        moved = (raw.double().softmax(-1) - without_banned(raw)).abs().sum() / 2
        assert step.of(0).moved == pytest.approx(float(moved), abs=2e-4)  # type: ignore[union-attr]
        names = [stage.name for stage in step.stages]
        assert names[:3] == ["model", "Harmless", "temperature"] and set(names[3:]) <= {"min_p", "top_k, top_p"}
        tokens.append(ids[0])


def without_banned(raw: torch.Tensor) -> torch.Tensor:
    """Return the distribution without the tokens that ``Harmless`` bans."""
    kept = raw.double().softmax(-1)
    kept[:2] = 0
    return kept / kept.sum()


def test_two_processors_of_which_either_suffices_are_both_shown_to_act() -> None:
    """Each bans the same token: without one of them, the other still changes the reply."""
    needed = MODEL.tokenizer.get_vocab()[played(temperature=0.0).plain[3]]
    shown = played(Harms, Harms, count=6, temperature=0.0, extra_args={"harm_at": 3, "harm_token": needed})
    assert shown.parted == 4 and shown.steps[3].without == (shown.steps[3].token,) * 2
    assert [receipt.chose for receipt in shown.receipts] == [(), ()]


@pytest.mark.parametrize("host", ["v1", "v2"])
def test_the_toy_thinks_between_markers_that_the_engine_knows(host: str) -> None:
    case = Case({"max_tokens": 5, "seed": 0, "thinking_token_budget": 3})
    prompt = MODEL.encode("User: What is two and two?\nAssistant: <think>")
    steps = tuple(Lockstep(ShownRequest(host, MODEL, case, prompt, [])).steps())
    assert [step.stages[-1].name for step in steps].index("thinking_token_budget") == 3
    assert steps[3].token == "</think>"


def test_the_reply_ends_with_the_end_of_the_text() -> None:
    class Ends(Harmless):
        def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
            logits[:, 2] = 1e4
            return logits

    shown = played(Ends)
    assert [step.token for step in shown.steps] == ["</s>"]
    assert shown.parted == 1 and shown.steps[0].token != shown.steps[0].plain
