"""A processor learns the facts about its rows inside transformers' own ``generate``."""

from __future__ import annotations

import copy
import threading
import types
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import lpkit
import lpkit.export
import pytest
import torch
import transformers
from lpkit.export.for_transformers import ExportedProcessor

VOCAB = 40

Seen = list[tuple[list[int], list[int]]]


class Probe(lpkit.AdapterLogitsProcessor):
    """Writes down what it is given; forbids the tokens of ``forbid``."""

    class Params(lpkit.Params, prefix="probe_"):
        forbid: tuple[lpkit.TokenId, ...] = ()
        on: bool

    seen: ClassVar[Seen] = []
    made: ClassVar[list[int]] = []

    def new_req_logits_processor(self, params: Any) -> Callable[..., torch.Tensor] | None:
        mine = self.params(params)
        self.made.append(0)

        def call(prompt: list[int], output: list[int], logits: torch.Tensor) -> torch.Tensor:
            self.seen.append((list(prompt), list(output)))
            return logits.index_fill(0, torch.tensor(mine.forbid, dtype=torch.int64), -torch.inf)

        return call if mine is not None and mine.on else None


@pytest.fixture
def seen() -> Seen:
    Probe.seen.clear()
    Probe.made.clear()
    return Probe.seen


def tiny(seed: int, vocab: int = VOCAB, layers: int = 1) -> Any:
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=vocab, hidden_size=16, intermediate_size=16, num_hidden_layers=layers, num_attention_heads=2
    )
    model = transformers.LlamaForCausalLM(config).eval()
    model.generation_config.pad_token_id = 0
    model.generation_config.eos_token_id = None
    return model


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny(0)


def probe(**options: Any) -> ExportedProcessor:
    return lpkit.export.transformers(Probe, {"on": True}, **options)


def generate(model: Any, prompts: Any, processor: Any, **options: Any) -> torch.Tensor:
    return model.generate(  # type: ignore[no-any-return]
        torch.as_tensor(prompts), logits_processor=[processor], **{"max_new_tokens": 4, "do_sample": False, **options}
    )


def test_each_prompt_has_its_own_arguments_or_none(model: Any) -> None:
    prompts = [[5, 6], [5, 6], [5, 6]]
    free = model.generate(torch.tensor(prompts[:1]), max_new_tokens=1, do_sample=False)[0, -1].item()
    given = [{"on": True, "forbid": (free,)}, None, {"probe_on": True}]
    tokens = generate(model, prompts, lpkit.export.transformers(Probe, given))[:, 2]
    assert tokens[0] != free
    assert tokens.tolist()[1:] == [free, free]


def test_a_prompt_without_arguments_does_not_use_a_class_that_takes_none(model: Any) -> None:
    rule = lpkit.bridge(lambda output, logits: logits.index_fill(0, torch.arange(VOCAB - 1), -torch.inf), name="Last")
    tokens = generate(model, [[5, 6], [5, 6]], lpkit.export.transformers(rule, [{}, None]))
    alone = model.generate(torch.tensor([[5, 6]]), max_new_tokens=4, do_sample=False)
    assert tokens[0, 2:].tolist() == [VOCAB - 1] * 4
    assert torch.equal(tokens[1:], alone)


def test_padding_is_not_history_whatever_token_it_is(model: Any, seen: Seen) -> None:
    mask = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])
    generate(model, [[0, 0, 0, 7], [0, 5, 6, 7]], probe(), attention_mask=mask, max_new_tokens=2)
    assert [prompt for prompt, _ in seen] == [[0, 7], [0, 5, 6, 7]] * 2


def test_padding_that_generate_finds_itself_is_not_history(model: Any, seen: Seen) -> None:
    generate(model, [[0, 0, 6, 7], [4, 5, 6, 7]], probe(), max_new_tokens=1)
    assert [prompt for prompt, _ in seen] == [[6, 7], [4, 5, 6, 7]]


@pytest.mark.parametrize("options", [{"num_beams": 3}, {"num_beams": 2, "do_sample": True, "num_return_sequences": 2}])
def test_beams_show_the_tokens_of_their_own_row(model: Any, seen: Seen, options: dict[str, Any]) -> None:
    torch.manual_seed(3)
    shown: list[list[int]] = []

    class Watch(transformers.LogitsProcessor):
        def __call__(self, input_ids: Any, scores: Any) -> Any:
            shown.extend(input_ids.tolist())
            return scores

    prompts = torch.tensor([[5, 6], [7, 8]])
    model.generate(prompts, logits_processor=[Watch(), probe()], max_new_tokens=12, **options)
    assert [prompt + output for prompt, output in seen] == shown
    assert {len(prompt) for prompt, _ in seen} == {2}


def test_only_copies_of_a_beam_are_new_requests(model: Any, seen: Seen) -> None:
    generate(model, [[5, 6], [7, 8]], probe(), num_beams=4, max_new_tokens=20)
    assert len(seen) == 8 * 20
    assert len(Probe.made) < len(seen) / 3


def test_each_call_of_generate_begins_with_its_prompt_even_where_it_is_all_of_the_text_before(
    model: Any, seen: Seen
) -> None:
    ours = probe()
    text = generate(model, [[5, 6]], ours)
    generate(model, text, ours)
    generate(model, text[:, :3], ours)
    generate(model, text, ours)
    prompts = [prompt for prompt, _ in seen]
    assert prompts == [[5, 6]] * 4 + [text[0].tolist()] * 4 + [text[0, :3].tolist()] * 4 + [text[0].tolist()] * 4
    assert [len(output) for _, output in seen] == [0, 1, 2, 3] * 4


@pytest.mark.parametrize("use_cache", [True, False])
def test_rows_that_have_finished_disturb_nobody(
    model: Any, seen: Seen, use_cache: bool, caplog: pytest.LogCaptureFixture
) -> None:
    prompts = [[5, 6], [7, 8]]
    free = generate(model, prompts, probe(), max_new_tokens=8)
    end = next(token for token in free[0, 2:].tolist() if token not in free[1])
    seen.clear()
    tokens = generate(model, prompts, probe(), max_new_tokens=8, eos_token_id=end, use_cache=use_cache)
    assert torch.equal(tokens[1], free[1])
    assert [output for prompt, output in seen if prompt == [7, 8]][-1] == free[1, 2:-1].tolist()
    assert not caplog.records


def assisted(model: Any, processor: Any, assistant: Any, prompt: list[int]) -> torch.Tensor:
    options: dict[str, Any] = {"prompt_lookup_num_tokens": 3} if assistant is None else {"assistant_model": assistant}
    return generate(model, [prompt], processor, max_new_tokens=16, **options)


@pytest.mark.parametrize("seed", [None, 0, 1], ids=["prompt lookup", "good assistant", "poor assistant"])
def test_drafts_of_an_assistant_change_no_token(model: Any, seen: Seen, seed: int | None) -> None:
    prompt = [5, 6, 7, 5, 6, 7, 5, 6]
    forbid = {"on": True, "forbid": tuple(range(0, VOCAB, 3))}
    plain = generate(model, [prompt], lpkit.export.transformers(Probe, forbid), max_new_tokens=16)
    seen.clear()
    assistant = None if seed is None else tiny(seed)
    ours = lpkit.export.transformers(Probe, forbid)
    assert torch.equal(assisted(model, ours, assistant, prompt), plain)
    assert {tuple(prompt) for prompt, _ in seen} == {tuple(prompt)}


@pytest.mark.parametrize("vocab", [VOCAB, 64])
def test_an_assistant_of_another_vocabulary_proposes_without_the_processor(model: Any, seen: Seen, vocab: int) -> None:
    assistant, ours = tiny(1, vocab), probe()

    class Assisted(transformers.LogitsProcessor):
        def __call__(self, input_ids: Any, scores: Any) -> Any:
            generate(assistant, input_ids, ours, max_new_tokens=2)
            return scores

    free = model.generate(torch.tensor([[5, 6]]), max_new_tokens=4, do_sample=False)
    text = model.generate(
        torch.tensor([[5, 6]]), logits_processor=[Assisted(), ours], max_new_tokens=4, do_sample=False
    )
    assert torch.equal(text, free)
    drafts = 0 if vocab != VOCAB else 2 * 3  # the first comes before the model's own vocabulary is known
    assert len(seen) == 4 + drafts
    assert {tuple(prompt) for prompt, _ in seen} == {(5, 6)}


def sharpened(temperatures: list[float], **options: Any) -> list[Any]:
    return [transformers.TemperatureLogitsWarper(value) for value in temperatures] + [
        lpkit.export.transformers(Spread, {"on": True}, **options)
    ]


class Spread(lpkit.LogitsProcessor):
    """Writes down how far apart the logits are."""

    stage = "sampling"

    class Params(lpkit.Params, prefix="spread_"):
        on: bool

    seen: ClassVar[list[float]] = []

    def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
        self.seen += (logits.amax(1) - logits.amin(1)).tolist()
        return logits


@pytest.mark.parametrize(
    ("before", "options"),
    [([], {"temperature": 0.5}), ([0.5], {}), ([0.25], {"temperature": 2.0})],
    ids=["temperature follows", "temperature was applied", "both"],
)
def test_a_processor_of_the_sampling_stage_sees_logits_divided_by_the_temperature(
    model: Any, before: list[float], options: dict[str, Any]
) -> None:
    Spread.seen.clear()
    prompts = torch.tensor([[5, 6]])
    with torch.no_grad():
        logits = model(prompts).logits[0, -1]
    model.generate(prompts, logits_processor=sharpened(before), max_new_tokens=1, do_sample=True, **options)
    assert Spread.seen == pytest.approx([(logits.amax() - logits.amin()).item() / 0.5], rel=1e-5)


@pytest.mark.parametrize("options", [{}, {"num_beams": 2}])
def test_a_processor_of_the_sampling_stage_does_nothing_where_nothing_is_sampled(
    model: Any, options: dict[str, Any]
) -> None:
    Spread.seen.clear()
    generate(model, [[5, 6]], lpkit.export.transformers(Spread, {"on": True}), **options)
    assert Spread.seen == []


def test_a_token_outside_the_vocabulary_is_refused_before_the_first_token(model: Any) -> None:
    with pytest.raises(ValueError, match=r"Probe: probe_forbid: token id 40 is outside the vocabulary of 40"):
        generate(model, [[5, 6]], lpkit.export.transformers(Probe, {"on": True, "forbid": (VOCAB,)}))


def test_arguments_for_another_number_of_prompts_are_refused(model: Any) -> None:
    ours = lpkit.export.transformers(Probe, [{"on": True}, {"on": False}])
    with pytest.raises(ValueError, match="arguments of 2 prompts, not of 4"):
        generate(model, [[5, 6]] * 4, ours)
    with pytest.raises(ValueError, match="arguments of no prompt"):
        lpkit.export.transformers(Probe, [])


def test_models_of_other_vocabularies_take_turns_with_one_object(model: Any, seen: Seen) -> None:
    ours = probe()
    for each in (model, tiny(1, vocab=64), model):
        generate(each, [[5, 6]], ours, max_new_tokens=2)
    assert [output for _, output in seen[::2]] == [[], [], []]


def test_scores_of_half_precision_and_large_batches_are_edited(model: Any) -> None:
    half = copy.deepcopy(model).to(torch.bfloat16)
    ours = lpkit.export.transformers(Probe, {"on": True, "forbid": tuple(range(VOCAB - 1))})
    assert (generate(half, [[5, 6]] * 20, ours)[:, 2:] == VOCAB - 1).all()
    edited = ours(torch.tensor([[1, 2]]), torch.zeros(1, VOCAB, dtype=torch.bfloat16))
    assert edited.dtype == torch.bfloat16


class Loop:
    """A decoding loop that is not ``generate``: each row's next token is its last one plus one."""

    def __init__(self, processor: ExportedProcessor) -> None:
        self.processor = processor

    def run(self, prompts: list[list[int]], steps: int) -> list[list[int]]:
        ids = torch.tensor(prompts)
        for _ in range(steps):
            self.processor(ids, torch.zeros(len(prompts), VOCAB))
            ids = torch.cat([ids, ids[:, -1:] + 1], dim=1)
        return ids.tolist()  # type: ignore[no-any-return]


def test_outside_of_generate_rows_that_go_on_are_the_same_generation(seen: Seen) -> None:
    loop = Loop(probe(pad_token_id=0))
    loop.run([[0, 5], [3, 4]], 2)
    loop.run([[0, 5], [3, 4]], 1)
    assert seen == [([5], []), ([3, 4], []), ([5], [6]), ([3, 4], [5]), ([5], []), ([3, 4], [])]


def test_outside_of_generate_the_temperature_is_what_was_said() -> None:
    Spread.seen.clear()
    logits = torch.tensor([[0.0, 3.0, 1.0]])
    for temperature in (0.5, 0.0, None):
        ours = lpkit.export.transformers(Spread, {"on": True}, temperature=temperature)
        assert torch.equal(ours(torch.tensor([[1]]), logits), logits)
    assert Spread.seen == [6.0, 3.0]


def test_outside_of_generate_reset_begins_a_generation(seen: Seen) -> None:
    ours = probe()
    text = Loop(ours).run([[5, 6]], 2)
    ours.reset()
    Loop(ours).run(text, 1)
    assert seen[-1] == (text[0], [])


def test_a_second_thread_is_refused_while_a_generation_runs_and_not_afterwards(model: Any) -> None:
    processor = probe()
    refused: list[BaseException] = []

    def other() -> None:
        try:
            generate(model, [[7, 8]], processor)
        except RuntimeError as error:
            refused.append(error)

    def between_steps(*_: Any, **__: Any) -> Any:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        return torch.zeros(1, dtype=torch.bool)

    tokens = generate(model, [[5, 6]], processor, stopping_criteria=[between_steps])
    assert len(refused) == 4
    assert "serves a generation of another thread" in str(refused[0])
    assert tokens.equal(generate(model, [[5, 6]], probe()))
    refused.clear()
    between_steps()
    assert not refused


def test_outside_of_generate_another_thread_needs_reset() -> None:
    processor = probe()
    processor(torch.tensor([[5, 6]]), torch.zeros(1, VOCAB))
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(RuntimeError, match=r"call reset\(\) before another thread uses it"):
            pool.submit(processor, torch.tensor([[7, 8]]), torch.zeros(1, VOCAB)).result()
        processor.reset()
        pool.submit(processor, torch.tensor([[7, 8]]), torch.zeros(1, VOCAB)).result()


def test_a_processor_is_given_the_tokenizer_that_was_handed_over(model: Any) -> None:
    found: list[Any] = []

    class Asks(Probe):
        def __init__(self, vllm_config: Any, *rest: Any) -> None:
            super().__init__(vllm_config, *rest)
            found.append(lpkit.tokenizer(self))

    tokenizer = types.SimpleNamespace(encode=str.split)
    generate(model, [[5, 6]], lpkit.export.transformers(Asks, {"on": True}, tokenizer=tokenizer), max_new_tokens=1)
    assert found[0] is tokenizer
