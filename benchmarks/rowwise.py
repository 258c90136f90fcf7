"""Rules as request-level callables, the way they are usually written: one row at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

Row = Callable[..., torch.Tensor]
"""``(output, logits)`` or ``(prompt, output, logits)``."""

Arguments = Mapping[str, Any]


def min_p(args: Arguments) -> Row:
    """Keep what is at least so likely as ``min_p_threshold`` times the likeliest."""
    threshold = math.log(args["min_p_threshold"])
    return lambda output, logits: logits.masked_fill_(logits < logits.max() + threshold, -math.inf)


def top_n_sigma(args: Arguments) -> Row:
    """Keep what is within so many standard deviations of the highest logit."""
    n = args["top_n_sigma"]
    return lambda output, logits: logits.masked_fill_(logits < logits.max() - n * logits.std(correction=0), -math.inf)


def allowed_tokens(args: Arguments) -> Row:
    """Mask all but a list."""
    ids = torch.tensor(args["allowed_tokens"])

    def only(output: list[int], logits: torch.Tensor) -> torch.Tensor:
        masked = torch.full_like(logits, -math.inf)
        masked[ids] = logits[ids]
        return masked

    return only


def target_token(args: Arguments) -> Row:
    """Mask all but one."""
    return allowed_tokens({"allowed_tokens": [args["target_token"]]})


def logit_bias(args: Arguments) -> Row:
    """Add to chosen tokens."""
    ids, values = torch.tensor(args["logit_bias_ids"]), torch.tensor(args["logit_bias_values"])
    return lambda output, logits: logits.index_add_(0, ids.to(logits.device), values.to(logits.device))


def penalties(args: Arguments) -> Row:
    """Presence and frequency penalties, from the output's counts."""
    presence, frequency = args.get("penalties_presence", 0.0), args.get("penalties_frequency", 0.0)

    def penalize(output: list[int], logits: torch.Tensor) -> torch.Tensor:
        ids, counts = torch.unique(torch.tensor(output, device=logits.device), return_counts=True)
        logits[ids] -= presence + frequency * counts
        return logits

    return penalize


def xtc(args: Arguments) -> Row:
    """Drop the likely tokens but the least likely of them; the coin is always heads."""
    threshold = args.get("xtc_threshold", 0.1)

    def exclude(output: list[int], logits: torch.Tensor) -> torch.Tensor:
        shares = logits.softmax(-1)
        least = torch.where(shares >= threshold, shares, math.inf).amin()
        return logits.masked_fill_(shares > least, -math.inf)

    return exclude


def dynamic_temperature(args: Arguments) -> Row:
    """Divide by a temperature between two, by the entropy, as koboldcpp does."""
    low, high, exponent = args["temperature_low"], args["temperature_high"], args["temperature_exponent"]

    def divide(output: list[int], logits: torch.Tensor) -> torch.Tensor:
        logprobs = logits.log_softmax(-1)
        entropy = torch.special.entr(logprobs.exp()).sum()
        share = entropy / math.log(max(int(logprobs.isfinite().sum()), 2))
        return logits.div_(low + (high - low) * share**exponent)

    return divide


def no_repeat_ngram(args: Arguments) -> Row:
    """Mask what followed an earlier occurrence of the reply's last tokens."""
    context = args["no_repeat_ngram_size"] - 1

    def forbid(output: list[int], logits: torch.Tensor) -> torch.Tensor:
        end = output[len(output) - context :]
        banned = [output[at + context] for at in range(len(output) - context) if output[at : at + context] == end]
        logits[banned] = -math.inf
        return logits

    return forbid


def dry(args: Arguments) -> Row:
    """Penalize what would continue a repetition, walking back from every earlier occurrence of the last token."""
    multiplier, base, allowed = args["dry_multiplier"], args.get("dry_base", 1.75), args.get("dry_allowed_length", 2)
    breakers = frozenset(args.get("dry_breakers", ()))

    def penalize(prompt: list[int], output: list[int], logits: torch.Tensor) -> torch.Tensor:
        text = [*prompt, *output]
        longest: dict[int, int] = {}
        for after in range(1, len(text)):
            length = 0
            while length < after and text[after - 1 - length] == text[-1 - length] not in breakers:
                length += 1
            if length >= allowed and text[after] not in breakers:
                longest[text[after]] = max(length, longest.get(text[after], 0))
        for token, length in longest.items():
            logits[token] -= multiplier * base ** (length - allowed)
        return logits

    return penalize


def loop_breaker(args: Arguments) -> Row:
    """In a reply that ends with one span over and over, lower what would go on with it."""
    times, least, penalty = args["loop_times"], args["loop_tokens"], args["loop_penalty"]

    def lower(output: list[int], logits: torch.Tensor) -> torch.Tensor:
        for span in range(1, len(output) // times + 1):
            same = span
            while same < len(output) and output[-1 - same] == output[-1 - same + span]:
                same += 1
            if same >= max(times * span, least):
                logits[output[-span]] -= penalty
                break
        return logits

    return lower
