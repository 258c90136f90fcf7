"""Judges one mutant: the checks, in a child process that imports a mutated copy of the packages."""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PROCESSORS = tuple(
    f"tests/conformance/zoo/correct/{name}.py" for name in ("v1", "v1_history", "v2", "portable", "adapter")
)
"""Modules of correct processors."""

CPU_SECONDS = 30
"""Processor time that one check may take; the slowest takes 4 s."""

MEMORY = 10 << 30
LATER = ("LP220", "LP219", "LP208", "LP603", "LP608", "LP808", "LP308", "LP604")
"""The slow checks, which run when the others found nothing."""

Outcome = dict[str, str]
"""``status`` is ``failed``, ``raised`` (at import, or in a check), ``stopped`` (time or memory), ``inactive`` (no case
makes the plugin act) or ``survived``; ``by`` is the check and host, ``probe`` the processor that showed the mutant."""


class Overlay:
    """A copy of the packages in which one module at a time is mutated."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.rmtree(folder, ignore_errors=True)
        ignore = shutil.ignore_patterns("__pycache__")
        for package in ("sdk/lpkit", "conformance/lpkit_conformance", "tests/conformance/zoo"):
            shutil.copytree(ROOT / package, folder / Path(package).name, ignore=ignore)
        (folder / "zoo" / "__init__.py").write_text("")  # which would import the planted defects

    def judge(self, file: str, source: str, probes: Sequence[str], quick: bool) -> Outcome:
        """The outcome of the checks with ``source`` in place of a file of the repository."""
        parts = Path(file).parts
        package = next(n for n, part in enumerate(parts) if part in ("lpkit", "zoo"))
        copy, answer = self.folder.joinpath(*parts[package:]), self.folder / "outcome.json"
        original = copy.read_text("utf-8")
        answer.unlink(missing_ok=True)
        replace(copy, source)
        job = json.dumps([str(answer), list(probes), quick])
        try:
            subprocess.run(
                [sys.executable, "-c", "from mutation import judge; judge.main()", job],
                env={"PYTHONPATH": f"{self.folder}:{Path(__file__).parents[1]}", "OMP_NUM_THREADS": "1"},
                capture_output=True,
                check=False,
            )
        finally:
            replace(copy, original)
        outcome: Outcome = json.loads(answer.read_text()) if answer.exists() else {"status": "stopped", "by": "signal"}
        return outcome


def replace(module: Path, source: str) -> None:
    """Write a module and drop its bytecode, which is checked by time and size only: a mutant may share both."""
    for cached in (module.parent / "__pycache__").glob(f"{module.stem}.*"):
        cached.unlink()
    module.write_text(source, "utf-8")


def main() -> None:
    """The child process: judge what it imports, and write the outcome to the file that it is given."""
    import resource

    answer, probes, quick = json.loads(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        outcome = checked(probes, quick)
    except BaseException as error:
        outcome = {"status": "raised", "by": type(error).__name__, "message": str(error)[:200]}
    Path(answer).write_text(json.dumps(outcome))


def checked(probes: Sequence[str], quick: bool) -> Outcome:
    """Run the checks on the probes until one fails: the quick checks on each probe, then the slow ones."""
    import signal

    from lpkit_conformance.checks.catalogue import inactive
    from lpkit_conformance.programs import shrink
    from lpkit_conformance.settings.plan import Plan
    from lpkit_conformance.suite.in_process import Session

    for file in PROCESSORS:
        importlib.import_module(".".join(Path(file).with_suffix("").parts[2:]))
    importlib.import_module("mutation.probes")
    shrink.BUDGET = 0  # small evidence takes seconds, and only the verdict counts here
    registered = {item.name: item for item in importlib.import_module("zoo.registry").CORRECT}
    chosen = [registered[name] for name in probes]
    quick_plan, slow_plan = {"ignore": LATER}, {"select": LATER, "alone": True}
    for options in (quick_plan,) if quick else (quick_plan, slow_plan):
        for item in chosen:
            seen = []
            signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
            for result in Session(item.id, item.target, Plan(cases=item.cases, **options)).results():
                signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
                seen.append(result)
                if result.status in ("failed", "error"):
                    status = "failed" if result.status == "failed" else "raised"
                    return {"status": status, "by": result.label, "probe": item.name, "message": result.message[:200]}
            if options is quick_plan and inactive(seen):
                return {"status": "inactive", "by": "no case acts", "probe": item.name}
    return {"status": "survived", "by": "", "probe": ""}
