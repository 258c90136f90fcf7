"""Log-probabilities of responses: layouts, parameters, gradients, forbidden tokens, bridges and callables."""

from __future__ import annotations

import math
import pickle
from typing import Any

import lpkit
import numpy as np
import pytest
import torch
from lpkit import kernels, train, v1
from lpkit.runtime import Request, V2Engine
from lpkit.sampling_params import SamplingParams
from trained_tokenizers import byte_level

VOCAB = 128
PROMPTS = [[1, 2, 3], [4], [5, 6, 7, 8]]
RESPONSES = [[3, 3, 9, 3], [11, 12], [5, 6, 5]]
FLAT = [token for response in RESPONSES for token in response]


class Repetition(lpkit.LogitsProcessor):
    """Divides the logits of tokens that occurred; a token that occurred twice is written twice."""

    history = "tokens"

    class Params(lpkit.Params, prefix="rep_"):
        factor: float
        cut: float = 0.0

    factor = lpkit.column(torch.float32)

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        values = logits[rows.tokens]
        logits[rows.tokens] = values / self.factor[rows].unsqueeze(1)


class OnlyEven(lpkit.LogitsProcessor):
    """Rules odd tokens out."""

    class Params(lpkit.Params):
        even: bool

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        logits[:, 1::2] = -math.inf
        return logits


def scaled_by_length(prompt_ids: list[int], output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
    logits[prompt_ids] *= 1.0 + len(output_ids)
    return logits


Callables = lpkit.bridge(scaled_by_length, keys="scale", name="Callables")


class OldScale(v1.LogitsProcessor):
    """A V1 class: each row times the number of its outputs."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self._rows: dict[int, list[int]] = {}

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: v1.BatchUpdate | None) -> None:
        v1.process_dict_updates(self._rows, batch_update, lambda params, prompt, output: output)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        factors = [1.0 + len(self._rows.get(row, ())) for row in range(logits.shape[0])]
        return logits * torch.tensor(factors).unsqueeze(1)


Bridge = lpkit.bridge(OldScale, keys="scale", history="tokens", name="Bridge")


def batch(dtype: torch.dtype = torch.float32, length: int | None = None) -> torch.Tensor:
    generator = torch.Generator().manual_seed(7)
    total = sum(map(len, RESPONSES)) if length is None else length
    return torch.randn(total, VOCAB, generator=generator, dtype=torch.float64).mul_(2).to(dtype)


def token_by_token(cls: type[Any], params: SamplingParams, text: int, rows: torch.Tensor) -> torch.Tensor:
    """Return the logits of the reference engine's V2 sampler for each row, one step at a time."""
    found = []
    for position, row in enumerate(rows):
        engine = V2Engine([cls], vocab_size=VOCAB)
        request = Request("r", params, [*PROMPTS[text]], output_token_ids=RESPONSES[text][:position])
        engine.source = type("Fixed", (), {"rows": lambda self, names, row=row: row.unsqueeze(0)})()
        engine.add(request)
        found.append(engine.step().processed[0])
    return torch.stack(found).log_softmax(-1).gather(1, torch.tensor(RESPONSES[text]).unsqueeze(1)).squeeze(1)


@pytest.mark.parametrize(
    ("cls", "parameters"),
    [(Repetition, {"factor": 1.7}), (Callables, {"scale": True}), (Bridge, {"scale": 1})],
    ids=["portable", "callable", "bridge"],
)
@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_every_layout_gives_what_each_sequence_gives_alone(cls: type[Any], parameters: Any, runner: Any) -> None:
    packed = batch()
    alone = [
        train.processed_logprobs(cls, parameters, prompt, response, rows, sampling={"temperature": 0.6}, runner=runner)
        for prompt, response, rows in zip(PROMPTS, RESPONSES, packed.split(list(map(len, RESPONSES))), strict=True)
    ]
    keys = SamplingParams(temperature=0.6, extra_args=lpkit.portable.arguments.extra_args_of(cls, parameters))
    if runner == "v2":
        for number, rows in enumerate(packed.split(list(map(len, RESPONSES)))):
            assert torch.equal(alone[number], token_by_token(cls, keys, number, rows))
    together = train.processed_logprobs(cls, None, PROMPTS, RESPONSES, packed, sampling=keys, runner=runner)
    assert torch.equal(together, torch.cat(alone))
    padded = torch.nn.utils.rnn.pad_sequence(list(packed.split(list(map(len, RESPONSES)))), batch_first=True)
    tensors = [torch.tensor(response) for response in RESPONSES]
    for chunk_bytes in (1, 2**20):
        found = train.processed_logprobs(
            cls, [parameters] * 3, PROMPTS, tensors, padded, sampling=[{"temperature": 0.6}] * 3, runner=runner,
            chunk_bytes=chunk_bytes,
        )  # fmt: skip
        assert torch.equal(found, torch.nn.utils.rnn.pad_sequence(alone, batch_first=True))


@pytest.mark.parametrize("made", [torch.tensor, np.array, tuple])
def test_token_ids_come_as_lists_tensors_or_arrays(made: Any) -> None:
    prompts, responses = [[1, 2], [3, 4]], [[5, 6, 7], [8, 9, 5]]
    wanted = train.processed_logprobs(Repetition, {"factor": 1.5}, prompts, responses, batch(length=6))
    found = train.processed_logprobs(Repetition, {"factor": 1.5}, made(prompts), made(responses), batch(length=6))
    assert torch.equal(found, wanted)
    (one,) = batch(length=3).split(3)
    alone = train.processed_logprobs(Repetition, {"factor": 1.5}, made(prompts[0]), made(responses[0]), one)
    assert torch.equal(alone, wanted[:3])


def test_padding_rows_and_sequences_that_do_not_use_the_processor_keep_their_logits() -> None:
    padded = batch(length=12).view(3, 4, VOCAB)
    processed = train.processed_logits(Repetition, [{"factor": 2.0}, None, {"factor": 3.0}], PROMPTS, RESPONSES, padded)
    assert torch.equal(processed[1], padded[1])
    assert torch.equal(processed[2, 3], padded[2, 3])
    assert not torch.equal(processed[0], padded[0])
    assert not torch.equal(processed[2, :3], padded[2, :3])


def test_half_precision_logits_are_processed_in_float32_and_get_gradients_of_their_own_type() -> None:
    half = batch(torch.bfloat16).requires_grad_()
    full = half.detach().float().requires_grad_()
    for logits in (half, full):
        train.processed_logprobs(Repetition, {"factor": 1.5}, PROMPTS, RESPONSES, logits).sum().backward()
    assert half.grad is not None and half.grad.dtype == torch.bfloat16
    assert full.grad is not None and torch.equal(half.grad, full.grad.bfloat16())


@pytest.mark.parametrize("runner", ["v1", "v2"])
@pytest.mark.parametrize("function", [train.processed_logits, train.processed_logprobs])
@pytest.mark.parametrize(
    ("cls", "parameters"),
    [(Repetition, {"factor": 1.7}), (OnlyEven, {"even": True}), (Callables, {"scale": True}), (Bridge, {"scale": 1})],
    ids=["sparse", "dense", "callable", "bridge"],
)
def test_gradients_are_those_of_finite_differences(function: Any, cls: type[Any], parameters: Any, runner: Any) -> None:
    """Also where chunks cut sequences, a token is written twice, and the engine's stages stand before and behind."""
    sampling = {"temperature": 0.7, "repetition_penalty": 1.3, "presence_penalty": 0.2, "top_k": 90, "top_p": 0.99}

    def call(logits: torch.Tensor) -> torch.Tensor:
        found = function(
            cls, parameters, PROMPTS, RESPONSES, logits, sampling=sampling, runner=runner, forbidden="mask",
            chunk_bytes=3 * 4 * (VOCAB + 32),
        ).values  # fmt: skip
        return torch.where(found.isneginf(), 0.0, found)

    assert torch.autograd.gradcheck(call, (batch(torch.float64).requires_grad_(),), atol=1e-6, fast_mode=True)


@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_a_token_that_is_ruled_out_is_named_with_its_position(runner: Any) -> None:
    logits = batch().requires_grad_()
    with pytest.raises(train.ForbiddenTokensError, match="token 3 at position 0 of sequence 0; token 3 at") as error:
        train.processed_logprobs(OnlyEven, {"even": True}, PROMPTS, RESPONSES, logits, runner=runner)
    assert error.value.tokens[:4] == ((0, 0, 3), (0, 1, 3), (0, 2, 9), (0, 3, 3))
    assert error.value.tokens[4:] == ((1, 0, 11), (2, 0, 5), (2, 2, 5))
    values, mask = train.processed_logprobs(
        OnlyEven, {"even": True}, PROMPTS, RESPONSES, logits, runner=runner, forbidden="mask"
    )
    assert mask.tolist() == [token % 2 == 1 for response in RESPONSES for token in response]
    assert values[mask].tolist() == [0.0] * 7
    assert bool(values[~mask].lt(0).all())
    values.sum().backward()
    assert logits.grad is not None and bool(logits.grad.isfinite().all())
    assert not logits.grad[mask].any() and bool(logits.grad[~mask].any(-1).all())
    with pytest.raises(train.ForbiddenTokensError):
        train.processed_logits(OnlyEven, {"even": True}, PROMPTS, RESPONSES, logits, runner=runner)


def test_greedy_requests_have_the_log_probabilities_that_vllm_reports() -> None:
    """The temperature of 0 divides by nothing, and processors of the sampling stage are not for them."""
    params = SamplingParams(temperature=0.0, extra_args={"rep_factor": 1.7})
    rows = batch(length=4)
    found = train.processed_logprobs(Repetition, None, PROMPTS[0], RESPONSES[0], rows, sampling=params)
    assert torch.equal(found, token_by_token(Repetition, params, 0, rows))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parameters": {"factr": 2.0}}, "no parameter 'factr'; did you mean 'factor'"),
        ({"parameters": {"factor": 2.0}, "sampling": {"temprature": 1.0}}, "no 'temprature'; did you mean 'temp"),
        ({"parameters": [{"factor": 2.0}]}, "parameters: 1 given for 3 sequences"),
        (
            {"parameters": {"factor": 2.0}, "sampling": SamplingParams(extra_args={"rep_factor": 3.0})},
            "rep_factor: given in parameters and in the extra_args",
        ),
        ({"prompt": PROMPTS[:2]}, "2 prompts and 3 responses"),
        ({"prompt": [[1], [], [2]]}, "prompt 1 is empty"),
        ({"response": [[3], [VOCAB], [4]]}, "response 1, position 0: token id 128 is outside the vocabulary of 128"),
        ({"response": [[3], [2], [4]]}, "3 response tokens, and 9 rows"),
        ({"response": [3] * 9, "prompt": [1], "logits": batch().unsqueeze(0)}, "need one response per sequence"),
        ({"logits": batch().view(3, 3, VOCAB)}, "response 0 has 4 tokens, its logits 3 rows"),
        ({"logits": batch().long()}, "logits must be floating-point"),
        ({"forbidden": "ignore"}, "forbidden must be"),
        ({"runner": "v3"}, "runner must be"),
        ({"chunk_bytes": 0}, "chunk_bytes must be positive"),
        ({"response": [["3"], [2], [4]]}, "token ids must be integers"),
        ({"response": list(np.array(FLAT)), "prompt": [1]}, "integers: .* not of numpy.int64"),
        ({"prompt": [1, 2, 3]}, "token ids must be a list or a tensor of integers per sequence, not 1"),
        ({"logits": batch().long()}, r"not torch.int64 \[9, 128\]"),
        ({"parameters": [{"factor": 2.0}, {"factor": "x"}, None]}, "sequence 1: rep_factor"),
        ({"sampling": [{}, {}, {"top_p": 2.0}]}, "sequence 2: sampling: top_p"),
        ({"sampling": {"temperature": "hot"}}, "sampling: "),
        ({"sampling": {"bad_words": ["no"]}}, r"bad_words=\['no'\] have no token ids here"),
        ({"sampling": {"thinking_token_budget": 5}}, "thinking_token_budget=5 is not covered"),
        ({"sampling": SamplingParams(structured_outputs={"regex": "a+"})}, "structured_outputs are not covered"),
    ],
)
def test_what_does_not_fit_together_is_refused(options: dict[str, Any], message: str) -> None:
    given = {"parameters": {"factor": 2.0}, "prompt": PROMPTS, "response": RESPONSES, "logits": batch(), **options}
    with pytest.raises(ValueError, match=message):
        train.processed_logprobs(Repetition, **given)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cls": scaled_by_length}, "class is needed, not <function scaled_by_length .*; .* with lpkit.bridge"),
        ({"logits": batch().tolist()}, "logits must be a torch.Tensor, not list"),
        ({"parameters": [1, None, None]}, "sequence 0: parameters: a mapping of names to values is needed, not 1"),
        ({"sampling": 0.7}, "sampling: a mapping of names to values is needed, not 0.7"),
    ],
)
def test_what_is_of_another_type_is_refused(options: dict[str, Any], message: str) -> None:
    given = {"parameters": None, "prompt": PROMPTS, "response": RESPONSES, "logits": batch(), **options}
    with pytest.raises(TypeError, match=message):
        train.processed_logprobs(given.pop("cls", Repetition), **given)


class Bans(lpkit.LogitsProcessor):
    """Rules words out, and admits no more than two."""

    class Params(lpkit.Params):
        banned: lpkit.TokenIdsOf

    banned = lpkit.ragged(torch.int64)

    def admit(self, request: lpkit.Request[Params]) -> bool:
        if len(request.params.banned) > 2:
            raise RuntimeError("more than two")
        self.banned[request.slot] = request.params.banned
        return True

    def edit(self, logits: lpkit.SparseLogits, rows: lpkit.Rows) -> None:
        logits[self.banned[rows]] = -math.inf


@pytest.mark.parametrize("runner", ["v1", "v2"])
@pytest.mark.parametrize(
    ("banned", "message"),
    [
        (["yes"], "sequence 1: Bans could not admit .*: banned: 'yes' has no token ids .* takes one as tokenizer="),
        ([1000], "sequence 1: .*token id 1000 is outside the vocabulary of 128"),
        ([100, 101, 102], "sequence 1: .*more than two"),
    ],
)
def test_a_request_that_cannot_be_admitted_is_refused_with_its_number(banned: Any, message: str, runner: Any) -> None:
    parameters = [{"banned": [100]}, {"banned": banned}, None]
    with pytest.raises(ValueError, match=message):
        train.processed_logits(Bans, parameters, PROMPTS, RESPONSES, batch(), runner=runner)


@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_words_are_found_with_the_tokenizer_that_is_given(runner: Any) -> None:
    words = byte_level()
    (token,) = lpkit.words(words, ["yes"])[0:1]
    rows = torch.zeros(1, 1000)
    found = train.processed_logits(Bans, {"banned": ["yes"]}, [1], [2], rows, runner=runner, tokenizer=words)
    assert found.isneginf().nonzero().tolist() == [[0, token]]
    compared = train.check_rollout(
        Bans, {"banned": ["yes"]}, [1], [2], rows, [-math.log(999)], runner=runner, tokenizer=words
    )
    assert compared.agrees


class Standardized(lpkit.LogitsProcessor):
    """Divides by the deviation, in place: the gradient needs what is overwritten."""

    class Params(lpkit.Params):
        standardized: bool

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        logits /= logits.std(-1, keepdim=True)
        return logits


@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_what_is_overwritten_after_it_was_read_has_a_gradient(runner: Any) -> None:
    def call(logits: torch.Tensor) -> torch.Tensor:
        return train.processed_logprobs(
            Standardized, {"standardized": True}, PROMPTS, RESPONSES, logits, runner=runner, chunk_bytes=4000
        )

    assert torch.autograd.gradcheck(call, (batch(torch.float64).requires_grad_(),), atol=1e-6, fast_mode=True)


class NearTop(lpkit.LogitsProcessor):
    """Rules out what is more than a distance below the top."""

    class Params(lpkit.Params):
        distance: float

    distance = lpkit.column(torch.float32)

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        return kernels.mask_far_below_top_(logits, self.distance[rows].unsqueeze(1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_masks_rule_tokens_out_of_logits_of_either_width(dtype: torch.dtype) -> None:
    rows = torch.tensor([[0.0, 1.0, 9.0, 2.0]] * 2, dtype=dtype)
    with pytest.raises(train.ForbiddenTokensError) as error:
        train.processed_logprobs(NearTop, {"distance": 0.1}, [1], [2, 3], rows)
    again = pickle.loads(pickle.dumps(error.value))
    assert (str(again), again.tokens) == (str(error.value), ((0, 1, 3),))


def test_a_class_without_the_runners_interface_is_refused_with_a_way_out() -> None:
    with pytest.raises(TypeError, match="OldScale has no V2 interface: choose runner='v1'"):
        train.processed_logprobs(OldScale, None, PROMPTS, RESPONSES, batch())
    assert train.processed_logprobs(OldScale, None, PROMPTS, RESPONSES, batch(), runner="v1").shape == (9,)


def test_unpadded_takes_padding_on_either_side() -> None:
    ids = torch.tensor([[0, 0, 5], [0, 6, 7]])
    assert train.unpadded(ids, torch.tensor([[0, 1, 1], [1, 1, 0]])) == [[0, 5], [0, 6]]


# -- the self-test ---------------------------------------------------------------------------------------------------

OPTIONS: dict[str, Any] = {"sampling": {"temperature": 0.8, "repetition_penalty": 1.4, "frequency_penalty": 0.5}}


def reported(**options: Any) -> torch.Tensor:
    return train.processed_logprobs(Repetition, {"factor": 1.5}, PROMPTS, RESPONSES, batch(), **options)


def compare(rollout: Any, **options: Any) -> train.Comparison:
    return train.check_rollout(Repetition, {"factor": 1.5}, PROMPTS, RESPONSES, batch(), rollout, **OPTIONS, **options)


def test_a_rollout_with_equal_log_probabilities_agrees() -> None:
    rollout = reported(**OPTIONS)
    found = compare([part.tolist() for part in rollout.split(list(map(len, RESPONSES)))])
    assert found.agrees and found.largest == 0.0
    assert str(found) == "9 tokens agree within 0.001; the largest difference is 0"


def test_the_token_that_differs_is_named() -> None:
    rollout = reported(**OPTIONS)
    rollout[5] -= 0.25
    found = compare(rollout)
    assert not found.agrees
    (item,) = found.differences
    assert item[:3] == (1, 1, 12)
    assert item.trainer - item.rollout == pytest.approx(0.25, abs=1e-6)
    assert str(found).startswith(
        "1 of 9 tokens differ by more than 0.001, by 0.25 at most\n  sequence 1, position 1, token 12: rollout -"
    )
    assert found.hint == ""


def test_a_forbidden_token_and_nan_differ() -> None:
    rollout = reported(**OPTIONS)
    rollout[2] = math.nan
    assert [item[:2] for item in compare(rollout).differences] == [(0, 2)]
    found = train.check_rollout(OnlyEven, {"even": True}, PROMPTS[1], RESPONSES[1], batch(length=2), [-1.0, -1.0])
    assert found.differences[0] == (0, 0, 11, -1.0, -math.inf)
    assert found.largest == math.inf


def test_unprocessed_rollouts_and_the_other_runner_are_recognised() -> None:
    raw = batch().log_softmax(-1).gather(1, torch.tensor(FLAT).unsqueeze(1)).squeeze(1)
    assert 'logprobs_mode="processed_logprobs"' in str(compare(raw))
    assert compare(reported(**OPTIONS, runner="v1")).hint == "The rollout ran on the other runner: give runner='v1'."


def test_a_rollout_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(ValueError, match="one log-probability per response token"):
        compare([[0.0], [0.0], [0.0]])
    with pytest.raises(ValueError, match=r"rollout has the shape \[8\]"):
        compare(torch.zeros(8))
