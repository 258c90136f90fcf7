"""A Llama of one or two layers with seeded weights: enough of a model for an engine, and nothing to download.

There are two. One is like a real model: a row of logits depends on everything before it, and a little on which other
rows were computed at the same time, because floating-point sums round. The *exact* one does not round: its logits are
a function of the last token alone, the same bits in any batch and after any preemption, and :func:`exact_rows` knows
them without an engine. So whatever differs there, a logits processor made different.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

HIDDEN = 128
LAYERS = 2
HEAD_DIM = 64
LOGITS_STD = 3.0
GRID = 2.0**18
"""The exact model's output weights are multiples of 1 / GRID: the sum of 128 needs no more than float32's 24 bits."""


def write(folder: Path, vocab_size: int, max_model_len: int, exact: bool = False) -> None:
    """Write ``config.json`` and ``model.safetensors`` of a tiny model into ``folder``; ``exact``: of the exact one.

    The weights are written rather than left to vLLM's dummy loader: that one draws them from +-0.001, norms
    included, so all logits are nearly equal and a processor's effect drowns in rounding. Here the logits of
    a row are spread like a real model's (standard deviation about 3) and differ from row to row.

    Raises ImportError when torch or safetensors is missing, ValueError when ``vocab_size`` is not a multiple
    of 128 (below that, kernels round differently for batches and for single rows).
    """
    if vocab_size <= 0 or vocab_size % 128:
        raise ValueError(f"vocab_size must be a positive multiple of 128, not {vocab_size}")
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": HIDDEN,
        "num_hidden_layers": len(_layers(exact)),
        "num_attention_heads": HIDDEN // HEAD_DIM,
        "num_key_value_heads": HIDDEN // HEAD_DIM,
        "head_dim": HEAD_DIM,
        "vocab_size": vocab_size,
        "max_position_embeddings": max(2048, max_model_len),
        "hidden_act": "silu",
        "rms_norm_eps": 0.0 if exact else 1e-5,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    weights = _weights(vocab_size, _layers(exact))
    if exact:
        weights.update(_exact_ends(vocab_size))
        for name in weights:
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                weights[name].zero_()
    save_file(weights, str(folder / "model.safetensors"), metadata={"format": "pt"})


def exact_rows(vocab_size: int, tokens: Sequence[int]) -> torch.Tensor:
    """The exact model's logits after each of ``tokens``, float32 ``[len(tokens), vocab_size]``, bit for bit."""
    import torch

    ends = _exact_ends(vocab_size)
    embedded = ends["model.embed_tokens.weight"][torch.tensor(tokens, dtype=torch.long)]
    return (embedded.double() @ ends["lm_head.weight"].double().T).float()


def _exact_ends(vocab_size: int) -> dict[str, torch.Tensor]:
    """Embeddings of 1 and -1, which the layers pass on and the norms keep, and output weights on a grid."""
    import torch

    generator = torch.Generator().manual_seed(1)
    signs = torch.randint(0, 2, (vocab_size, HIDDEN), generator=generator) * 2 - 1
    head = torch.randn(vocab_size, HIDDEN, generator=generator) * (LOGITS_STD / math.sqrt(HIDDEN))
    return {"model.embed_tokens.weight": signs.float(), "lm_head.weight": (head * GRID).round() / GRID}


def _layers(exact: bool) -> range:
    """The exact model's layers only pass on what they get, so one will do."""
    return range(1 if exact else LAYERS)


def _weights(vocab_size: int, layers: range) -> dict[str, torch.Tensor]:
    import torch

    generator = torch.Generator().manual_seed(0)

    def normal(rows: int, columns: int, std: float) -> torch.Tensor:
        return torch.randn(rows, columns, generator=generator) * std

    weights = {
        "model.embed_tokens.weight": normal(vocab_size, HIDDEN, 1.0),
        "model.norm.weight": torch.ones(HIDDEN),
        # The final norm gives hidden states of unit variance.
        "lm_head.weight": normal(vocab_size, HIDDEN, LOGITS_STD / math.sqrt(HIDDEN)),
    }
    inner = 1.0 / math.sqrt(HIDDEN)
    for layer in layers:
        prefix = f"model.layers.{layer}."
        for name in ("self_attn.q", "self_attn.k", "self_attn.v", "self_attn.o"):
            weights[f"{prefix}{name}_proj.weight"] = normal(HIDDEN, HIDDEN, inner)
        for name in ("mlp.gate", "mlp.up", "mlp.down"):
            weights[f"{prefix}{name}_proj.weight"] = normal(HIDDEN, HIDDEN, inner)
        for name in ("input", "post_attention"):
            weights[f"{prefix}{name}_layernorm.weight"] = torch.ones(HIDDEN)
    return weights
