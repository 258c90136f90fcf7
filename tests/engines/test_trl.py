"""TRL's own GRPO trainer with the hook of the guide: two optimization steps of a tiny model on a CPU."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import lpkit.train
import pytest
import torch
from lpkit_penalties.processor import Penalties

# Warnings of TRL's and transformers' own making.
pytestmark = [pytest.mark.engines, pytest.mark.filterwarnings("ignore")]

ROOT = Path(__file__).resolve().parents[2]
PAD, EOS, VOCAB = 62, 63, 64


def hook() -> Any:
    """The trainer that the guide shows."""
    page = (ROOT / "docs" / "how-to" / "train.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(import trl\n.*?)```", page, re.S)
    namespace: dict[str, Any] = {
        "__name__": "guide",
        "lpkit": lpkit,
        "Repeats": Penalties,
        "PARAMETERS": {"repetition": 1.5},
    }
    exec(compile(block, "train.md", "exec", dont_inherit=True), namespace)
    namespace["PARAMETERS"] = {"repetition": 1.5}
    return namespace["ProcessedGRPOTrainer"]


@pytest.fixture
def trainer(tmp_path: Path) -> Any:
    import datasets
    import transformers
    import trl
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {f"w{n}": n for n in range(PAD)} | {"<pad>": PAD, "<eos>": EOS}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    wrapped = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="w0", padding_side="left"
    )
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=VOCAB, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        pad_token_id=PAD, eos_token_id=EOS, bos_token_id=None, initializer_range=1.0,
    )  # fmt: skip
    prompts = [" ".join(f"w{(i + j) % 60}" for j in range(3 + i % 3)) for i in range(8)]
    options = trl.GRPOConfig(
        output_dir=str(tmp_path), per_device_train_batch_size=4, num_generations=4, max_completion_length=6,
        max_steps=2, num_iterations=2, temperature=0.8, learning_rate=1e-2, beta=0.0, report_to=[], use_cpu=True,
        bf16=False, save_strategy="no",
    )  # fmt: skip
    return hook()(
        model=transformers.LlamaForCausalLM(config),
        reward_funcs=lambda completions, **_: [float(len(set(text.split()))) for text in completions],
        args=options,
        train_dataset=datasets.Dataset.from_list([{"prompt": text} for text in prompts]),
        processing_class=wrapped,
    )


def test_grpo_trains_on_the_processed_log_probabilities(trainer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[bool] = []
    plain = lpkit.train.processed_logprobs

    def counted(*args: Any, **options: Any) -> torch.Tensor:
        found = plain(*args, **options)
        calls.append(found.requires_grad)
        return found

    monkeypatch.setattr(lpkit.train, "processed_logprobs", counted)
    before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    trainer.train()
    assert trainer.state.global_step == 2
    assert calls.count(True) == 2  # a loss in each step, and the rollout's own log-probabilities once
    assert any(not torch.equal(before[name], value) for name, value in trainer.model.state_dict().items())


def test_the_hook_differs_from_trls_own_numbers_by_the_processing_alone(trainer: Any) -> None:
    ids = torch.tensor([[PAD, 5, 6, 5, 9, 9, PAD], [7, 8, 9, 7, 7, 8, 9]])
    mask = torch.tensor([[0, 1, 1, 1, 1, 1, 0], [1] * 7])
    own = super(type(trainer), trainer)._get_per_token_logps_and_entropies(trainer.model, ids, mask, 4)[0]
    prompts, responses = [[5, 6], [7, 8, 9]], [[5, 9, 9], [7, 7, 8, 9]]
    logits = trainer.model(input_ids=ids, attention_mask=mask, logits_to_keep=5).logits[:, :-1]
    without = lpkit.train.processed_logprobs(Penalties, None, prompts, responses, logits, sampling={"temperature": 0.8})
    kept = mask[:, -4:].bool()
    torch.testing.assert_close(without[kept], own[kept], rtol=1e-5, atol=1e-5)
    ours = trainer._get_per_token_logps_and_entropies(trainer.model, ids, mask, 4)[0]
    assert ours.shape == own.shape
    assert not torch.allclose(ours[kept], own[kept], atol=1e-2)
    wanted = lpkit.train.processed_logprobs(
        Penalties, {"repetition": 1.5}, prompts, responses, logits, sampling={"temperature": 0.8}
    )
    torch.testing.assert_close(ours, wanted)
