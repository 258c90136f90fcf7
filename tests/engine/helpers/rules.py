"""Requests, and the rules of plugins in plain Python: the token that a greedy request must get at each position."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import numpy as np
from lpkit_conformance.checks.engine.asks import Answer, Ask

VOCAB = 512
STAIRS = (*range(1, 31), *range(1, 4))
"""A prompt that counts: the drafts of a request that has to go on counting are right."""


def make_ask(
    name: str,
    prompt: int | tuple[int, ...],
    tokens: int,
    at: int = 0,
    temperature: float = 0.0,
    kinds: int = VOCAB,
    **extra_args: Any,
) -> Ask:
    """Return a request for ``tokens`` tokens; a prompt given by its length is random, of ``kinds`` kinds of tokens."""
    seed = random.Random(name)
    ids = prompt if isinstance(prompt, tuple) else tuple(seed.randrange(kinds) for _ in range(prompt))
    params = {"max_tokens": tokens, "temperature": temperature, "extra_args": extra_args or None}
    return Ask(name, ids, params, at=at, logits=True)


def chosen(ask: Ask, answer: Answer) -> list[int]:
    """The best token that the rules of a request leave of the model's logits, at each position."""
    args = ask.params["extra_args"] or {}
    prompt = list(ask.prompt_token_ids)
    return [
        int(ruled(raw.astype(np.float64), args, prompt, answer.token_ids[:position]).argmax())
        for position, raw in enumerate(answer.rows)
    ]


def only(row: np.ndarray, tokens: list[int]) -> np.ndarray:
    left = np.full_like(row, -np.inf)
    left[tokens] = row[tokens]
    return left


def repetitions(text: list[int], breakers: list[int]) -> dict[int, int]:
    """For each token that would continue a repetition, how long the longest is."""
    found: dict[int, int] = {}
    for length in range(1, len(text)):
        if text[-length] in breakers:
            break
        for start in range(len(text) - length):
            if text[start : start + length] == text[-length:]:
                found[text[start + length]] = length
    return {token: length for token, length in found.items() if token not in breakers}


def looped(output: list[int], span: int, length: int) -> bool:
    """Return True if the last ``length`` tokens repeat ``span`` of them."""
    end = output[-length:]
    return len(end) == length and end[span:] == end[:-span]


def stepped(row: np.ndarray, document: str, prompt: list[int], output: list[int]) -> np.ndarray:
    """Return what the steps of a document leave, each by the rule of its plugin."""
    names = {"allow": "", "penalties": "penalties_", "dry": "dry_", "bias": "logit_bias_", "no_repeat_ngram": None}
    for step in json.loads(document):
        when, rule = step.pop("when", {}), step.pop("rule")
        prefix = f"{rule}_" if names[rule] is None else names[rule]
        args = {f"{prefix}{key}" if prefix else "allowed_tokens": value for key, value in step.items()}
        if when.get("from", 0) <= len(output) < when.get("until", 96):
            row = ruled(row, args, prompt, output)
    return row


def ruled(row: np.ndarray, args: dict[str, Any], prompt: list[int], output: list[int]) -> np.ndarray:
    """Return what the rules of a request with ``args`` leave of a row of the model's logits."""
    text = [*prompt, *output]
    if "rules" in args:
        row = stepped(row, args["rules"], prompt, output)
    if "allowed_tokens" in args:
        row = only(row, args["allowed_tokens"])
    for target in ("target_token", "old_target"):
        if args.get(target, VOCAB) < VOCAB:
            row = only(row, [args[target]])
    for token, value in zip(args.get("logit_bias_ids", ()), args.get("logit_bias_values", ()), strict=True):
        row[token] += value
    for token, value in args.get("old_bias", {}).items():
        row[int(token)] += value
    for penalty in ("penalties_repetition", "their_penalty"):
        for token in set(text) if penalty in args else ():
            row[token] *= 1 / args[penalty] if row[token] > 0 else args[penalty]
    for token in set(output) if "penalties_repetition" in args else ():
        row[token] -= args["penalties_presence"] + args["penalties_frequency"] * output.count(token)
    if "dry_multiplier" in args:
        for token, length in repetitions(text, args["dry_breakers"]).items():
            row[token] -= args["dry_multiplier"] * 1.75 ** (length - args["dry_allowed_length"])
    if "ngram_size" in args:  # of two tokens
        recent = output[-args["window_size"] :]
        repeats = {token for before, token in itertools.pairwise(recent) if before == output[-1]}
        row[list(repeats - {*args["whitelist_token_ids"]})] = -np.inf
    if "no_repeat_ngram_size" in args:
        size, seen = args["no_repeat_ngram_size"], output[-args.get("no_repeat_ngram_window", 0) :]
        ends = [end for end in range(size - 1, len(seen)) if seen[end - size + 1 : end] == seen[len(seen) - size + 1 :]]
        row[[seen[end] for end in ends]] = -np.inf
    if "loop_times" in args:  # twice
        spans = [n for n in range(1, len(output) // 2 + 1) if looped(output, n, max(2 * n, args["loop_tokens"]))]
        for span in spans[:1]:
            row[output[-span]] -= 100.0
    if "forced_sequence" in args:
        due = [*args["forced_sequence"], *[args["forced_sequence_end"]] * 96]
        row = only(row, [due[len(output)]])
    if len(output) < len(args.get("words", ())):
        row = only(row, [args["words"][len(output)]])
    if "think_budget" in args:
        n = len(output) - args["think_budget"]
        row = only(row, [args["think_end"][n]]) if 0 <= n < 3 else row
    if "cite_boost" in args:
        for token in {*prompt, *args["cite_also"]}:
            row[token] += args["cite_boost"]
        for token in {after for before, after in itertools.pairwise(prompt) if before == text[-1]}:
            row[token] += args["cite_next_boost"]
    if "wrap_up_token" in args:
        row[args["wrap_up_token"]] += len(output) * args.get("wrap_up_step", 0.1)
    if "recent_penalty" in args:
        row[list({*output[-args.get("recent_window", 16) :]})] -= args["recent_penalty"]
    if "count" in args:
        row = only(row, [(args["count"] + len(output)) % VOCAB])
    if {"ascend", "ascend_by_request", "ascend_by_callable", "old_ascend"} & args.keys():
        row = only(row, [text[-1] + 1])
    row[list({*text})] -= args.get("weary", 0.0)
    for token in text if "old_weary" in args else ():
        row[token] -= args["old_weary"]
    least, stops = args.get("old_min_tokens", (0, []))
    if len(output) < least:
        row[stops] = -np.inf
    return row
