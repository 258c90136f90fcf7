"""Code under Triton's interpreter, which needs no GPU.

Triton decides when it is imported: a server that has imported it with the interpreter forks a process for each call.
"""

from __future__ import annotations

import multiprocessing
import sys
from unittest import mock

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["lpkit_conformance.engine.beyond_cpu", "lpkit.kernels.triton_rows"])


def run(code: str, cases: tuple[tuple[object, ...], ...]) -> None:
    from lpkit.interfaces.lookup import do_without
    from lpkit_conformance.engine.beyond_cpu import hasten_interpreter

    do_without()  # vLLM's import takes 9 s
    hasten_interpreter()
    compiled = compile(code, "<interpreted>", "exec")
    for case in cases:
        sys.argv[1:] = map(str, case)
        try:
            exec(compiled, {"__name__": "interpreted"})
        except BaseException as error:
            raise AssertionError(f"with {case}: {error!r}") from error


def interpret(code: str, *cases: tuple[object, ...]) -> None:
    """Run the code with the arguments of each case, in a process that interprets."""
    with mock.patch.dict("os.environ", TRITON_INTERPRET="1"), FORKS.Pool(1) as pool:
        pool.apply_async(run, (code, cases or ((),))).get(timeout=600)
