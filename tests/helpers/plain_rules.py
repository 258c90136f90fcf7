"""The rules of plugins in plain Python, one row at a time."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np


def only(row: np.ndarray, tokens: list[int]) -> np.ndarray:
    left = np.full_like(row, -np.inf)
    left[tokens] = row[tokens]
    return left


def repetitions(text: list[int], least: int, breakers: list[int]) -> dict[int, int]:
    """For each token that would continue a repetition of ``least`` tokens, how long the longest is."""
    found: dict[int, int] = {}
    for length in range(1, len(text)):
        if text[-length] in breakers:
            break
        for start in range(len(text) - length):
            if text[start : start + length] == text[-length:] and length >= least:
                found[text[start + length]] = length
    return {token: length for token, length in found.items() if token not in breakers}


def loops(output: list[int], times: int, least: int) -> int | None:
    """Return the token that continues the loop with the shortest span, if the output ends in a loop."""
    for span in range(1, len(output) // times + 1):
        end = output[-max(span * times, least) :]
        if len(end) >= least and end[span:] == end[:-span]:
            return output[-span]
    return None


def bans(seen: list[int], size: int, since: int = 0) -> list[int]:
    """The last tokens of n-grams that begin at ``since`` or later, and whose other tokens were seen last."""
    last = seen[len(seen) - size + 1 :]
    return [seen[i + size - 1] for i in range(max(since, 0), len(seen) - size + 1) if seen[i : i + size - 1] == last]


def ends_thought(text: list[int], budget: int, start: list[int], end: list[int]) -> int | None:
    """Return the token of the end marker that is due, if a thought is open and has used up its budget."""
    began = ended = -1
    for i in range(1, len(text) + 1):
        began = i if text[:i][-len(start) :] == start else began
        ended = i if text[:i][-len(end) :] == end else ended
    if began <= ended or len(text) - began < budget:
        return None
    thought = text[began:]
    return end[max(k for k in range(len(end)) if k == 0 or thought[-k:] == end[:k])]


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
        if args.get(target, len(row)) < len(row):
            row = only(row, [args[target]])
    for token, value in zip(args.get("logit_bias_ids", ()), args.get("logit_bias_values", ()), strict=True):
        row[token] += value
    for token, value in args.get("old_bias", {}).items():
        row[int(token)] += value
    for penalty in ("penalties_repetition", "their_penalty"):
        for token in set(text) if penalty in args else ():
            row[token] *= 1 / args[penalty] if row[token] > 0 else args[penalty]
    for token in set(output) if "penalties_repetition" in args else ():
        row[token] -= args.get("penalties_presence", 0) + args.get("penalties_frequency", 0) * output.count(token)
    if "dry_multiplier" in args:
        least, recent = args.get("dry_allowed_length", 2), text[-args.get("dry_range", 0) :]
        for token, length in repetitions(recent, least, args.get("dry_breakers", [])).items():
            row[token] -= min(args["dry_multiplier"] * args.get("dry_base", 1.75) ** (length - least), 1e38)
    if "ngram_size" in args:
        banned = bans(output, args["ngram_size"], len(output) - args.get("window_size", 100))
        row[[token for token in banned if token not in args.get("whitelist_token_ids", [])]] = -np.inf
    if "no_repeat_ngram_size" in args:
        row[bans(output[-args.get("no_repeat_ngram_window", 0) :], args["no_repeat_ngram_size"])] = -np.inf
    if "loop_times" in args:
        end, numbers = args.get("loop_end", [0]), (args["loop_times"], args["loop_tokens"])
        begun = [n for n in range(len(end)) if output[len(output) - n :] == end[:n]]
        found = [(n, token) for n in begun if (token := loops(output[: len(output) - n], *numbers)) is not None]
        if found and "loop_end" in args:
            row = only(row, [end[found[-1][0]]])
        elif found:
            row[found[0][1]] -= args.get("loop_penalty", 100.0)
    if len(output) < len(args.get("forced_sequence", ())):
        row = only(row, [args["forced_sequence"][len(output)]])
    elif "forced_sequence_end" in args:
        row = only(row, [args["forced_sequence_end"]])
    if len(output) < len(args.get("words", ())):
        row = only(row, [args["words"][len(output)]])
    if "think_budget" in args:
        token = ends_thought(text, *(args[f"think_{key}"] for key in ("budget", "start", "end")))
        row = row if token is None else only(row, [token])
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
        row = only(row, [(args["count"] + len(output)) % len(row)])
    if {"ascend", "ascend_by_request", "ascend_by_callable", "old_ascend"} & args.keys():
        row = only(row, [text[-1] + 1])
    row[list({*text})] -= args.get("weary", 0.0)
    for token in text if "old_weary" in args else ():
        row[token] -= args["old_weary"]
    least, stops = args.get("old_min_tokens", (0, []))
    if len(output) < least:
        row[stops] = -np.inf
    return row
