"""Code under Triton's interpreter, which needs no GPU."""

from __future__ import annotations

import os
import subprocess
import sys

RUN = """
import sys
from lpkit_conformance.engine.beyond_cpu import hasten_interpreter
hasten_interpreter()
code, cases = compile(sys.argv[1], "<interpreted>", "exec"), eval(sys.argv[2])
for case in cases:
    sys.argv[1:] = map(str, case)
    try:
        exec(code, {"__name__": "interpreted"})
    except BaseException:
        print("with", *case)
        raise
"""


def interpret(code: str, *cases: tuple[object, ...]) -> None:
    """Run the code with the arguments of each case, in a process that interprets.

    Triton decides when it is imported.
    """
    done = subprocess.run(
        [sys.executable, "-c", RUN, code, repr(cases or ((),))],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
