"""Measure how well lpkit-synthid's detector tells marked texts from others: the numbers of its README.

    python benchmarks/synthid_detection.py

There is no model here: the logits of each position are random, normal and drawn anew; how wide they are is how much
entropy a position has, and that decides what the watermark can choose. Texts that are not marked are uniformly random.
"""

from __future__ import annotations

import math

import torch
from lpkit.runtime import make_config
from lpkit.sampling_params import SamplingParams
from lpkit.v1 import BatchUpdate
from lpkit_synthid import SynthId

VOCAB = 2_000
MARKED, OTHERS = 200, 2_000
LENGTHS = (25, 50, 100, 200)
DEVIATIONS = (4.5, 6.0, 9.0)
LEVELS = (0.01, 0.001)
"""p-values below which a text counts as marked."""
KEYS = {count: torch.randint(2**16, (count,), generator=torch.Generator().manual_seed(1)).tolist() for count in (9, 30)}


def marked(deviation: float, keys: list[int]) -> tuple[list[list[int]], float]:
    """Texts that the plugin marked, and the mean entropy of their positions in bits."""
    generator = torch.Generator().manual_seed(2)
    processor = SynthId(make_config(max_num_seqs=MARKED, vocab_size=VOCAB), torch.device("cpu"), False)
    params = SamplingParams(extra_args={"synthid_keys": keys})
    texts: list[list[int]] = [[] for _ in range(MARKED)]
    added = [(row, params, [1], text) for row, text in enumerate(texts)]
    processor.update_state(BatchUpdate(batch_size=MARKED, removed=[], added=added, moved=[]))
    entropy = 0.0
    for _ in range(max(LENGTHS)):
        logits = torch.randn(MARKED, VOCAB, generator=generator) * deviation
        entropy += float(torch.distributions.Categorical(logits=logits).entropy().mean()) / math.log(2)
        chosen = torch.multinomial(processor.apply(logits).softmax(1), 1, generator=generator)
        for text, token in zip(texts, chosen.flatten().tolist(), strict=True):
            text.append(token)
        processor.update_state(None)
    return texts, entropy / max(LENGTHS)


def shares(texts: list[list[int]], keys: list[int]) -> list[str]:
    """For each level and each length, the share of the texts that counts as marked."""
    found = [[SynthId.detect(text[:length], keys=keys).p_value for text in texts] for length in LENGTHS]
    return [f"{sum(p < level for p in values) / len(values):.2%}" for level in LEVELS for values in found]


def main() -> None:
    """Print a table: how many texts of each kind are taken for marked."""
    columns = [f"p < {level:g}, {length} tokens" for level in LEVELS for length in LENGTHS]
    print(f"| keys | texts | {' | '.join(columns)} |")
    print("|---:|---|" + "---:|" * len(columns))
    others = torch.randint(VOCAB, (OTHERS, max(LENGTHS)), generator=torch.Generator().manual_seed(3)).tolist()
    for count, keys in KEYS.items():
        print(f"| {count} | {OTHERS:,}, not marked | {' | '.join(shares(others, keys))} |")
        for deviation in DEVIATIONS:
            texts, entropy = marked(deviation, keys)
            print(f"| {count} | {MARKED}, {entropy:.1f} bits | {' | '.join(shares(texts, keys))} |", flush=True)


if __name__ == "__main__":
    main()
