"""Cost of the watcher, measured from outside: pairs of engines, with and without it, serve the same requests in turns.

    python benchmarks/watch_from_outside.py [--runner v1] [--rounds 20] [--requests 200] [--rows 32] [--vocab 32768]

Each round gives both engines of a pair the same requests, in the order off, on, on, off, so that a drift of the machine
falls on both alike. The ratio is on to off: of the engine process's processor time, and by the clock. The time per step
depends little on the model: a small ``--vocab`` shows it best. It holds on an idle machine only. Needs vLLM and
`pip install -e reference_plugins/lpkit-min-p`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from lpkit_conformance.engine.process import EngineProcess
from lpkit_conformance.engine.tiny import EngineSettings
from lpkit_conformance.engine_checks.asks import Ask
from lpkit_conformance.watch import SWITCH
from lpkit_conformance.watch.run_directory import RUN, read_numbers

HERE = Path(__file__).parent
PLUGIN, SOURCES = "lpkit_min_p:MinP", HERE.parent / "reference_plugins" / "lpkit-min-p" / "src"
POINT = "[vllm.general_plugins]\nlpkit_watch = lpkit_conformance.watch:activate\n"


def processor_time(engine: Any) -> float:
    """Return the seconds of processor time of the process that it is called in."""
    return time.process_time()


def requests(count: int, first: int) -> list[Ask]:
    """Return requests of mixed lengths; half of them use the plugin."""
    fields = {"temperature": 1.0, "ignore_eos": True}
    given = [{"extra_args": {"min_p_threshold": 0.1}}, {}]
    return [
        Ask(f"q{n}", (n % 400 + 3, 5, 7), {**fields, **given[n % 2], "max_tokens": 1 + n * 7 % 32})
        for n in range(first, first + count)
    ]


def serve(engine: EngineProcess, asks: list[Ask]) -> tuple[float, float]:
    """Serve the requests; return the seconds of processor time, and by the clock."""
    busy, start = engine.inspect("watch_from_outside:processor_time"), time.perf_counter()
    engine.generate(asks, timeout=3600)
    taken = time.perf_counter() - start
    return engine.inspect("watch_from_outside:processor_time") - busy, taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runner", choices=("v1", "v2"), default="v1")
    for name, default in (("rounds", 20), ("requests", 200), ("rows", 32), ("vocab", 32768)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        info = home / "watcher-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: watcher\nVersion: 1.0\n", encoding="utf-8")
        (info / "entry_points.txt").write_text(POINT, encoding="utf-8")
        engines = []
        for switch in ("0", "1"):
            (home / switch).mkdir()
            env = {SWITCH: switch, RUN: str(home / switch), "OMP_NUM_THREADS": "1"}
            engine = stack.enter_context(EngineProcess(given.runner, sys_path=[SOURCES, HERE, home], env=env))
            engine.start(EngineSettings(given.runner, given.rows, 256, given.vocab), [PLUGIN])
            engines.append(engine)
            engine.generate(requests(64, 0))  # first calls are slow
        ratios: list[list[float]] = [[], []]
        extra = [0.0, 0.0]
        for turn in range(given.rounds):
            asks = requests(given.requests, turn * given.requests)
            off, on, again, last = (serve(engines[which], asks) for which in (0, 1, 1, 0))
            for kind in (0, 1):
                with_it, without = on[kind] + again[kind], off[kind] + last[kind]
                ratios[kind].append(with_it / without)
                extra[kind] += with_it - without
        time.sleep(6)  # the last numbers are written
        print(f"{given}, load {os.getloadavg()[0]:.1f}")
        for name, found in zip(("processor time", "clock"), ratios, strict=True):
            low, middle, high = statistics.quantiles(found, n=4)
            print(f"{name:14}: on / off = {middle:.3f}, half of the rounds within {low:.3f} to {high:.3f}")
        for counts in read_numbers(home / "1").values():
            share = counts["own_seconds"] / counts["step_seconds"]
            print(f"by itself: {share:.2%} of step time, {counts['sampled_steps']} of {counts['steps']} steps sampled")
            each = [f"{seconds / counts['steps'] * 1e6:.0f}" for seconds in extra]
            print(f"more per step: {each[0]} us of processor time, {each[1]} us by the clock")


if __name__ == "__main__":
    main()
