"""What the reference plugins cost in drafts: the table of ``docs/evidence/performance.md``."""

from __future__ import annotations

import sys

from lpkit_conformance.bench.run import Options, run
from plugins_here import FOLDERS


def main() -> int:
    """Print a Markdown table of all reference plugins and their cases."""
    failed = 0
    head = ["plugin", "case", "accepted", "lowest tenth", "changed", *(f"tokens with {n}" for n in (1, 3, 5))]
    print("|", " | ".join(head), "|")
    print("|---|---|---|---|---|---|---|---|")
    for folder in FOLDERS:
        for target in run((), Options(drafts=True), folder).targets:
            failed += bool(target.error)
            for item in target.drafts:
                numbers = [f"{item.mean:.2f}", f"{item.lowest:.2f}", f"{item.changed:.0%}"]
                tokens = [f"{value:.2f}" for value in item.tokens_per_step.values()]
                print("|", " | ".join([target.target, f"`{item.case}`", *numbers, *tokens]), "|")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
