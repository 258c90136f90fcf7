"""What the watcher costs in a real engine, at several sampling rates against none, and whom it blames.

    python benchmarks/watch_overhead.py [--runner v1] [--vocab 32768] [--rows 32] [--requests 2000] [--rounds 10]
    python benchmarks/watch_overhead.py --requests 10000 --length 2 --only "every step"

One engine per setting, all of them running; each round gives every engine the same requests, in turns, so that what the
machine does besides hits all alike. ``tokens/s`` is the median over the rounds of tokens per second of the engine's
processor time, which another program takes less of than of the clock's; ``vs none`` that of each round's ratio, and
``on the clock`` the same ratio by the clock. The plugin is a correct one, so ``violations`` must be 0. Needs vLLM.
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
from lpkit_conformance.engine.tiny import Ask, EngineSettings
from lpkit_conformance.watch.run_directory import RUN, read_numbers
from lpkit_conformance.watch.switch import SWITCH

PLUGIN = "lpkit_min_p:MinP"
PROCESSOR_TIME = "watch_overhead:processor_time"
SOURCES = Path(__file__).parents[1] / "reference_plugins" / "lpkit-min-p" / "src"
SETTINGS = {
    "none": None,
    "budget 1 %": "budget = 0.01",
    "budget 5 %": "budget = 0.05",
    "every 100th step": "budget = 1.0\nrate = 0.01",
    "every 10th step": "budget = 1.0\nrate = 0.1",
    "every step": "budget = 1.0",
}
"""Lines of the TOML file, by what the table calls them."""


def install_entry_point(folder: Path) -> None:
    """As pip does, for environments in which lpkit was installed before it had the entry point."""
    info = folder / "watcher-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: watcher\nVersion: 1.0\n", encoding="utf-8")
    target = "lpkit_watch = lpkit_conformance.watch:activate"
    (info / "entry_points.txt").write_text(f"[vllm.general_plugins]\n{target}\n", encoding="utf-8")


def requests(count: int, first: int, length: int) -> list[Ask]:
    """Half of them use the plugin, a third is greedy."""
    return [
        Ask(
            f"q{number}",
            (number % 400 + 3, 5, 7),
            {
                "max_tokens": 1 + number * 7 % (2 * length),
                "temperature": float(number % 3) / 2,
                "ignore_eos": True,
                "extra_args": {"min_p_threshold": 0.1} if number % 2 else None,
            },
        )
        for number in range(first, first + count)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runner", choices=("v1", "v2"), default="v1")
    parser.add_argument("--vocab", type=int, default=32768)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--requests", type=int, default=2000, help="of each engine, in all rounds")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--length", type=int, default=16, help="tokens of a reply, in the mean")
    parser.add_argument("--only", choices=list(SETTINGS), help="this setting, and none")
    given = parser.parse_args()
    chosen = {name: lines for name, lines in SETTINGS.items() if given.only in (None, name) or name == "none"}
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        install_entry_point(home)
        engines: dict[str, EngineProcess] = {}
        for number, (name, lines) in enumerate(chosen.items()):
            folder, file = home / f"run{number}", home / f"{number}.toml"
            folder.mkdir()
            file.write_text(f"{lines or ''}\ninterval = 0.5\n", encoding="utf-8")
            settings = EngineSettings(given.runner, given.rows, 256, given.vocab, extra={"max_logprobs": 5})
            env = {SWITCH: "0" if lines is None else str(file), RUN: str(folder), "OMP_NUM_THREADS": "1"}
            engines[name] = stack.enter_context(
                EngineProcess(settings, [PLUGIN], sys_path=[SOURCES, Path(__file__).parent, home], env=env)
            )
        speeds = measure(engines, given.requests // given.rounds, given.rounds, given.length)
        time.sleep(2)  # the last numbers are written
        show(speeds, [read_numbers(home / f"run{number}") for number in range(len(chosen))], given)


def processor_time(engine: Any) -> float:
    """Of the process that it is called in."""
    return time.process_time()


def measure(
    engines: dict[str, EngineProcess], count: int, rounds: int, length: int
) -> dict[str, list[tuple[float, float]]]:
    """Tokens per second of every engine and round: of processor time, and by the clock."""
    speeds: dict[str, list[tuple[float, float]]] = {name: [] for name in engines}
    names = list(engines)
    for engine in engines.values():
        engine.generate(requests(64, 0, length))  # first calls are slow
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            asks = requests(count, turn * count, length)
            busy, start = engines[name].inspect(PROCESSOR_TIME), time.perf_counter()
            answers = engines[name].generate(asks, timeout=3600)
            taken = time.perf_counter() - start
            busy = engines[name].inspect(PROCESSOR_TIME) - busy
            tokens = sum(len(answer.token_ids) for answer in answers.values())
            speeds[name].append((tokens / busy, tokens / taken))
    return speeds


def show(speeds: dict[str, list[tuple[float, float]]], numbers: list[Any], given: argparse.Namespace) -> None:
    """A line per setting."""
    about = f"{given.runner}, {given.rows} rows, vocabulary {given.vocab}, {given.requests} requests"
    print(f"{about}, load {os.getloadavg()[0]:.1f}")
    heads = f"{'setting':18} {'tokens/s':>9} {'vs none':>8} {'on the clock':>12} {'steps':>7}"
    print(f"{heads} {'sampled':>8} {'own time':>9} {'rows':>8} {'violations':>11}")
    for (name, speed), found in zip(speeds.items(), numbers, strict=True):
        turns = list(zip(speed, speeds["none"], strict=True))
        busy, clock = (statistics.median(own[which] / none[which] for own, none in turns) for which in (0, 1))
        text = f"{name:18} {statistics.median(own[0] for own in speed):9.0f} {busy:8.3f} {clock:12.3f}"
        for process in found.values():
            seen = process["processors"].values()
            share = process["own_seconds"] / process["step_seconds"]
            wrong = sum(sum(one["violations"].values()) for one in seen)
            text += f" {process['steps']:7} {process['sampled_steps']:8} {share:9.2%}"
            text += f" {sum(one['rows'] for one in seen):8} {wrong:11}"
        print(text)


if __name__ == "__main__":
    main()
