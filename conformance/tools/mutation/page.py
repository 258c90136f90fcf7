"""Writes docs/evidence/mutation.md from results."""

from __future__ import annotations

import platform
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from importlib.metadata import version
from typing import Any

from mutation import mutants
from mutation.survivors import EQUIVALENT, GPU_ONLY, OTHER_RULE, REASONS

Results = Mapping[str, Mapping[str, Any]]

CAUGHT = ("failed", "raised", "stopped", "inactive")

COLUMNS = (
    "file",
    "made",
    "distinct",
    "judged",
    "caught",
    "advice only",
    "missed",
    "equivalent",
    "needs a GPU",
    "other rule",
    "score",
)
CLASSED = ("equivalent", "other", "gpu")

HEAD = """\
<!-- Written by conformance/tools/mutation (make mutation); edit {page} and survivors.py next to it instead. -->

# Mutation testing

Does `lpkit check` catch what we did not think of? A third-party mutation tester,
[universalmutator](https://github.com/agroce/universalmutator), changes one line at a time of code that is right:
of the SDK's bookkeeping, and of the zoo's correct processors. Each mutant is judged by the suite alone, without the
repository's own tests.

```
make mutation
```

Measured on {today} with universalmutator {tool}, Python {python}, torch {torch}, on two CPU cores, without vLLM.
"""

RULES = """\
## How it is counted

- *made*: files that the tool wrote. Dropped: those that do not compile, and those that equal the original or another
  mutant once docstrings, annotations and `pass` are left out.
- *judged*: of the rest, at most three of each line of the SDK and one of each line of the processors, chosen by a
  hash of the change.
- *caught*: a check of tier core fails, the plugin raises at import or in a check, a check does not end within
  {seconds} s of processor time, or no case acts any more. The command's exit code is then not 0.
- *advice only*: exit code 0, but the report has advice that the original does not get.
- *equivalent*: nothing that a processor, an engine or a client could see is different; each with its reason below.
- *needs a GPU*: the change is to copies between host and device, or to calls of Triton's kernels, of which there are
  none on the CPU.
- *other rule*: the mutant is a correct processor that does something else, such as banning token 3 instead of 2.
  A suite that knows no plugin's intention must pass it. Only mutants of processors may be classed so.
- *missed*: the rest. *score*: caught of those that change behaviour, that is without the last three.
  Advice does not count as caught.

The quick checks come first, on all processors concerned; then those of what is not explained under *Survivors*
goes through the slow ones.

SDK mutants are judged on {probes} processors: sparse and dense ones, each kind of history, both stages, all kinds of
columns and the request-level adapter. Those of `probes.py` compare what the SDK tells them in several ways and put out
NaN when it does not fit. Mutants of a processor are judged on it and on those derived from it.
"""


def render(made: Sequence[mutants.Made], results: Results, probes: Sequence[str], seconds: int) -> str:
    """The page."""
    versions = {"tool": version("universalmutator"), "torch": version("torch").split("+")[0]}
    lines = [
        HEAD.format(
            page="page.py",
            today=date.today().isoformat(),
            python=platform.python_version(),
            **versions,
        ),
        *table(made, results),
        "",
        RULES.format(seconds=seconds, probes=len(probes)),
        *catchers(made, results),
        "",
        *listing(made, results),
    ]
    return "\n".join(lines).rstrip() + "\n"


def judged(made: Sequence[mutants.Made], results: Results) -> Iterable[tuple[mutants.Mutant, str]]:
    """Every judged mutant and its class."""
    original = results["original"]["advice"]
    for item in made:
        for mutant in item.mutants:
            if mutant.id in results:
                yield mutant, verdict(mutant, results[mutant.id], original)


def verdict(mutant: mutants.Mutant, found: Mapping[str, Any], original: Mapping[str, Sequence[str]]) -> str:
    """``caught``, ``advice``, ``equivalent``, ``gpu``, ``other`` or ``missed``."""
    if found["status"] in CAUGHT:
        return "caught"
    if mutant.id in EQUIVALENT:
        return "equivalent"
    if mutant.id in OTHER_RULE:
        return "other"
    if mutant.id in GPU_ONLY:
        return "gpu"
    new = {code for probe, codes in found["advice"].items() for code in codes if code not in original.get(probe, ())}
    return "advice" if new else "missed"


def table(made: Sequence[mutants.Made], results: Results) -> list[str]:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for mutant, kind in judged(made, results):
        counts[mutant.file][kind] += 1
    lines = [f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
    groups = {"SDK": [item for item in made if item.file.startswith("sdk")]}
    groups["processors"] = [item for item in made if not item.file.startswith("sdk")]
    for name, group in groups.items():
        for item in group:
            distinct = item.raw - item.invalid - item.unchanged
            lines.append(row(f"`{item.file}`", item.raw, distinct, counts[item.file]))
        whole = sum((counts[item.file] for item in group), Counter[str]())
        raw = sum(item.raw for item in group)
        lines.append(row(f"**{name}**", raw, sum(i.raw - i.invalid - i.unchanged for i in group), whole))
    return lines


def row(name: str, raw: int, distinct: int, found: Counter[str]) -> str:
    changed = found["caught"] + found["advice"] + found["missed"]
    score = f"{100 * found['caught'] / changed:.1f}%" if changed else "-"
    kinds = ("caught", "advice", "missed", "equivalent", "gpu", "other")
    cells = [name, raw, distinct, found.total(), *(found[kind] for kind in kinds), score]
    return f"| {' | '.join(map(str, cells))} |"


def catchers(made: Sequence[mutants.Made], results: Results) -> list[str]:
    """Which checks caught how many: the first one that did, in the order in which they are tried."""
    counts: Counter[str] = Counter()
    for mutant, kind in judged(made, results):
        found = results[mutant.id]
        if kind == "caught":
            named = found["by"].partition("[")[0]
            counts[named if named.startswith("LP") else "raised or stopped"] += 1
    cells = [f"{code} {n}" for code, n in counts.most_common()]
    return ["## What caught them", "", "The first check that did, quick ones tried first: " + ", ".join(cells) + "."]


def listing(made: Sequence[mutants.Made], results: Results) -> list[str]:
    lines: list[str] = ["## Survivors"]
    groups: dict[tuple[str, str], list[mutants.Mutant]] = defaultdict(list)
    for mutant, kind in judged(made, results):
        if kind != "caught":
            reason = {**EQUIVALENT, **OTHER_RULE, **GPU_ONLY}.get(mutant.id, "") if kind in CLASSED else ""
            groups[kind, reason].append(mutant)
    titles = {
        "missed": "Missed",
        "advice": "Advice only",
        "equivalent": "Equivalent",
        "gpu": "Needs a GPU",
        "other": "Another rule",
    }
    for kind, title in titles.items():
        mine = {reason: items for (found, reason), items in groups.items() if found == kind}
        if mine:
            lines += ["", f"### {title}: {sum(map(len, mine.values()))}"]
        for reason, items in sorted(mine.items(), key=lambda entry: REASONS.get(entry[0], "")):
            if reason:
                lines += ["", f"{REASONS[reason]}"]
            lines.append("")
            lines += [f"- `{item.id}` {item.owner}: {escape(item.change)}" for item in items]
    return lines


def escape(text: str) -> str:
    return text.replace("<", "&lt;") if "`" not in text else text
