"""Sentences about the steps of a document."""

from __future__ import annotations

from typing import Any

from lpkit.rules.document import RULES, DocumentStep


def sentence(step: DocumentStep) -> str:
    """Say what a step does, with its numbers, and when."""
    rule = RULES[step.rule]
    does = rule.does.replace("`", "")
    numbers = {key: value for key, value in step.args.items() if key in rule.keys}
    shown = ", ".join(f"{key} {_short(value)}" for key, value in numbers.items())
    when = _when({key.removeprefix("when_"): value for key, value in step.args.items() if key.startswith("when_")})
    greedy = " Not for greedy requests." if rule.processor.stage == "sampling" else ""
    return f"{step.rule}: {does}{f' Here: {shown}.' if shown else ''}{when}{greedy}"


def _when(given: dict[str, Any]) -> str:
    if not given:
        return ""
    origin = f"the last {_short(given['after'])}" if "after" in given else "the start of the reply"
    if "during" in given:
        origin = f"the start of the {given['during']}"
    parts = [f"from {given.get('from', 0)}" + (f" to {given['until'] - 1}" if "until" in given else "")]
    if given.get("every", 1) > 1:
        parts.append(f"every {given['every']}")
    if "times" in given:
        parts.append(f"{given['times']} times at most")
    if "before" in given:
        parts.append(f"until {_short(given['before'])} is written")
    return f" At positions counted from {origin}: {', '.join(parts)}."


def _short(value: Any) -> str:
    if isinstance(value, list | tuple):
        shown = ", ".join(map(str, value[:6]))
        return f"[{shown}]" if len(value) <= 6 else f"[{shown} and {len(value) - 6} more]"
    return str(value)[:100]
