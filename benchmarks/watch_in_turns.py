"""Cost of the watcher in a real vLLM engine: one engine serves the same requests with and without it, in turns.

    python benchmarks/watch_in_turns.py [--runner v1] [--rounds 20] [--requests 200] [--rows 32] [--vocab 32768]

One process serves both: two processes differ by more than the watcher costs, because of their hashes and addresses. The
order off, on, on, off spreads a drift of the machine over both. The processor time of the whole engine process is
compared, so what the watcher does not count as its own is in it, too. A small ``--vocab`` shows the cost per step best.
Needs an idle machine, vLLM and `pip install -e reference_plugins/lpkit-min-p`.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from lpkit_conformance.checks.engine.asks import Ask
from lpkit_conformance.engine.process import EngineProcess
from lpkit_conformance.engine.tiny import EngineSettings
from lpkit_conformance.watch import SWITCH
from lpkit_conformance.watch.run_directory import RUN
from lpkit_conformance.watch.watcher import Watcher

HERE = Path(__file__).parent
PLUGIN, SOURCES = "lpkit_min_p:MinP", HERE.parent / "reference_plugins" / "lpkit-min-p" / "src"
POINT = "[vllm.general_plugins]\nlpkit_watch = lpkit_conformance.watch:activate\n"


def switch(engine: Any, active: bool) -> tuple[float, int, float]:
    """Switch the watcher of this process on or off.

    Returns:
        The seconds of processor time of this process so far; the steps that the watcher saw, and its own seconds.
    """
    watcher = next(each for each in gc.get_objects() if isinstance(each, Watcher))
    watcher.active = active
    return time.process_time(), watcher.budget.steps, watcher.budget.own_seconds


def requests(count: int, first: int) -> list[Ask]:
    """Return requests of mixed lengths; half of them use the plugin."""
    fields = {"temperature": 1.0, "ignore_eos": True}
    given = [{"extra_args": {"min_p_threshold": 0.1}}, {}]
    return [
        Ask(f"q{n}", (n % 400 + 3, 5, 7), {**fields, **given[n % 2], "max_tokens": 1 + n * 7 % 32})
        for n in range(first, first + count)
    ]


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
        env = {SWITCH: "1", RUN: str(home), "OMP_NUM_THREADS": "1"}
        engine = stack.enter_context(EngineProcess(given.runner, sys_path=[SOURCES, HERE, home], env=env))
        engine.start(EngineSettings(given.runner, given.rows, 256, given.vocab), [PLUGIN])
        engine.generate(requests(64, 0))  # first calls are slow

        def serve(asks: list[Ask], active: bool) -> tuple[float, int, float]:
            busy, steps, spent = engine.inspect("watch_in_turns:switch", active)
            engine.generate(asks, timeout=3600)
            after = engine.inspect("watch_in_turns:switch", active)
            return after[0] - busy, after[1] - steps, after[2] - spent

        ratios, extra, own, steps = [], 0.0, 0.0, 0
        for turn in range(given.rounds):
            asks = requests(given.requests, turn * given.requests)
            off, on, again, last = (serve(asks, active) for active in (False, True, True, False))
            ratios.append((on[0] + again[0]) / (off[0] + last[0]))
            extra += on[0] + again[0] - off[0] - last[0]
            steps, own = steps + on[1] + again[1], own + on[2] + again[2]
        low, middle, high = statistics.quantiles(ratios, n=4)
        print(f"{given}, load {os.getloadavg()[0]:.1f}")
        print(f"processor time, on / off = {middle:.3f}, half of the rounds within {low:.3f} to {high:.3f}")
        print(f"per step: {extra / steps * 1e6:.0f} us more, of which the watcher counts {own / steps * 1e6:.0f} us")


if __name__ == "__main__":
    main()
