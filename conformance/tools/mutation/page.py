"""Counts the results, as the Markdown of docs/evidence/mutation.md."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from mutation.judge import Outcome
from mutation.mutants import Mutant

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

KINDS = ("caught", "missed", "equivalent", "needs a GPU", "other rule")


@cache
def explained() -> dict[str, tuple[str, str]]:
    """(kind, reason) of the mutants that may survive, by id."""
    reasons = tomllib.loads(Path(__file__).with_name("survivors.toml").read_text("utf-8"))["reason"]
    return {name: (item["kind"], item["why"]) for item in reasons for name in item["ids"].split()}


def kind_of(mutant: Mutant, outcome: Outcome) -> str:
    """One of :data:`KINDS`."""
    if outcome["status"] != "survived":
        return "caught"
    return explained().get(mutant.id, ("missed", ""))[0]


def render(files: Sequence[str], mutants: Sequence[Mutant], results: Mapping[str, Outcome]) -> str:
    """The table, the checks that caught the mutants, and the survivors."""
    judged = [(mutant, kind_of(mutant, results[mutant.id])) for mutant in mutants if mutant.id in results]
    lines = [f"| file | judged | {' | '.join(KINDS)} | score |", "|---|" + "---|" * (len(KINDS) + 2)]
    for name, part in [*((f"`{file}`", file) for file in files), ("**SDK**", "sdk/"), ("**processors**", "tests/")]:
        counts = Counter(kind for mutant, kind in judged if mutant.file.startswith(part))
        if changed := counts["caught"] + counts["missed"]:
            cells = (name, counts.total(), *(counts[kind] for kind in KINDS), f"{counts['caught'] / changed:.1%}")
            lines.append(f"| {' | '.join(map(str, cells))} |")
    first = Counter(
        check if check.startswith("LP") else "raised or stopped"
        for check in (results[mutant.id]["by"].partition("[")[0] for mutant, kind in judged if kind == "caught")
    )
    lines += ["", "First check that failed: " + ", ".join(f"{code} {n}" for code, n in first.most_common()) + ".", ""]
    reasons = Counter(explained()[mutant.id] for mutant, kind in judged if kind not in ("caught", "missed"))
    lines += ["| survivors | kind | why |", "|---|---|---|"]
    lines += [f"| {n} | {kind} | {why} |" for (kind, why), n in reasons.most_common()]
    missed = [f"- `{item.id}` `{item.file}` {item.owner}: {item.change}" for item, kind in judged if kind == "missed"]
    return "\n".join([*lines, "", "Missed:", "", *(missed or ["none"])])
