"""The index of checks, read without importing them, equals their own metadata."""

from __future__ import annotations

import subprocess
import sys

from lpkit_conformance.catalogue import QUICK, by_code
from lpkit_conformance.index import CheckEntry, index


def test_the_index_says_what_the_checks_say() -> None:
    assert index() == {
        code: CheckEntry(
            code, check.name, check.sections()["title"], check.tier, check.engine, check.hosts, check.needs_action
        )
        for code, check in by_code().items()
    }


def test_the_index_needs_no_torch() -> None:
    program = "import sys; from lpkit_conformance.index import index; index(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_quick_run_is_of_checks_that_exist_and_can_fail_a_plugin() -> None:
    assert {index()[code].tier for code in QUICK} == {"core"}
