"""How often a step of each reference plugin asks a GPU for something, counted without one.

    make launches

The plugins run on torch's meta device, with a stand-in for Triton that only counts: each kernel of the SDK is launched
and computes nothing. That the kernels compute what the operations do, `tests/engine/test_triton_kernels.py` holds under
Triton's interpreter. Views and new memory launch nothing; a copy between host and device counts as a launch.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch
from lpkit.kernels.traffic import FUNCTIONS, LOGIT, PASSES, SPAN, Traffic, traffic
from lpkit.loading import resolve_target
from lpkit_conformance.bench.candidates import Parameters
from lpkit_conformance.bench.launches import DENSE, SPARSE, WITH_HISTORY, budget, launches
from lpkit_conformance.bench.several import OneEngine
from lpkit_conformance.hosts import parts_of
from lpkit_conformance.hosts.steady import SteadyBatch
from lpkit_conformance.instruments.meta_kernels import META, fused_on_meta
from lpkit_conformance.instruments.operations import CountLaunches
from lpkit_conformance.settings import project
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.vllm_api.stub import buffers_on

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = ROOT / "reference_plugins"
RUNNERS = ("v1", "v2")
BATCH, VOCAB, CONTEXT = 8, 1000, 100

Plugin = tuple[str, Any, dict[str, Any]]
"""Name, class, a case."""


def steady(
    cls: Any, case: dict[str, Any], runner: str, device: torch.device = META, batch: int = BATCH, share: float = 1.0
) -> CountLaunches:
    """What a step launches in which no request came or left, after one that did the same; ``share`` of them use it."""
    requests = SteadyBatch(batch, VOCAB, CONTEXT, share, device)
    candidate = parts_of(runner).candidate("plugin", cls, Parameters(case), device)
    with buffers_on(device):
        candidate.prepare(requests, requests.change())
        candidate.follow()
        logits = torch.zeros(batch, VOCAB, device=device)
        for _ in range(2):
            found = launches(candidate, requests, logits)
            requests.advance()
    return found


def together(plugins: Sequence[Plugin], apart: bool, device: torch.device = META) -> dict[str, int]:
    """Launches of a step on V2 whose requests use all of the plugins, in one engine or in one each.

    Returns:
        Of a step in which a request comes, and of one in which none does.
    """
    requests = SteadyBatch(BATCH, VOCAB, CONTEXT, 1.0, device)
    logits, found = torch.zeros(BATCH, VOCAB, device=device), {}
    asked = [(cls, case) for _, cls, case in plugins]
    with buffers_on(device), torch.inference_mode():
        engines = [OneEngine(group, requests, device) for group in ([[one] for one in asked] if apart else [asked])]
        for which in ("", "", "enters", "stays"):
            change = requests.no_change() if which == "stays" else requests.change()
            for engine in engines:
                engine.prepare(change)
            with CountLaunches(device) as counter:
                for engine in engines:
                    engine.step(logits)
            found[which] = counter.launches
            requests.advance()
    return {which: found[which] for which in ("enters", "stays")}


def cases() -> Iterator[Plugin]:
    """Each case of each reference plugin."""
    for folder in sorted(PLUGINS.glob("lpkit-*")):
        found = project.find(folder)
        assert found is not None
        sys.path.insert(0, str(folder / "src"))
        for target in found.entry_points.values():
            cls = resolve_target(target).cls
            yield from ((folder.name, cls, Case.parse(case).fields) for case in found.cases)


def plugins() -> Iterator[Plugin]:
    """Each reference plugin, with its first case."""
    for _, group in groupby(cases(), key=itemgetter(0)):
        yield next(group)


STAGING = "V1 stages new tokens: one copy and one launch."
BANNED = "The history, how far to look back in it, what to ban, and the mask."
REASONS = {
    "lpkit-cite-from-prompt": f"Two edits, and the arithmetic of what to cite. {STAGING}",
    "lpkit-dry": "What breaks a repetition, and penalties by length, are torch's operations.",
    "lpkit-forced-sequence": "Which token is due is worked out from the lengths, and looked up. V1 sends lengths.",
    "lpkit-greenlist-watermark": "The history, the seeds and the edit.",
    "lpkit-loop-breaker": "The history, its matches and the loop among them, the edit of one logit, and the mask.",
    "lpkit-no-repeat-ngram": BANNED,
    "lpkit-ocr-ngram": BANNED,
    "lpkit-penalties": STAGING,
    "lpkit-synthid": "The hash of a context is torch's operations; a launch for every four keys, and one for the edit.",
    "lpkit-thinking-budget": "The history, three questions about its markers, what is due by them, and the mask.",
    "lpkit-truncation": "It sorts, and looks for the limit in what is sorted.",
    "lpkit-xtc": "The lengths, a random number and the coin; the limit and the least likely token are a kernel each.",
}

HEAD = """\
<!-- Written by conformance/tools/launches.py (make launches); edit it there instead. -->

# Launches per step

How often a step in which no request comes or goes asks a GPU for something: operations of torch that compute or copy,
and Triton kernels. The number does not depend on the batch, but for typical and tail-free sampling, which sort 64 MiB
of logits at a time: 55 and 58 launches for 256 x 151,936. Where some requests of a batch do not use a dense rule, it
takes two more, which take the rows of the others out and put them back: no rule is shown rows that are not its own.
Plugins run with the first case of their projects, and with each that takes another number.
Counted without a GPU: the plugins run on torch's meta device, where a stand-in for Triton counts the kernels that
lpkit launches on CUDA. Nothing is timed here;
[a GPU](on-a-gpu.md#launches) counted the same, but for a few operations that are two kernels each.

The budget is {sparse} launches for a sparse rule (`edit`) without history, {history} for one with history, and {dense}
for a dense rule (`process`). Rows and slots are sent when they change; all columns are one gather; the tokens, lengths
and `is_output` of a step are one launch; so are a read of chosen logits and a write. With drafts, V2 finds
on the device which rows are whose and which tokens a row sees: these are more launches, by torch's operations.

| plugin | rule | budget | V1 | V2 | kernels on V2 | why more |
|---|---|---|---|---|---|---|
"""

TOGETHER = """
## Several plugins in one engine

On V2 the processors of an engine find the rows, lengths, tokens and columns of a step once for all that own the same
requests, and one copy sends what all of them have written of a new request. Launches of one step, all of whose requests
use all of the plugins, in an engine each and in one:

| plugins | a request comes: an engine each | one engine | none comes: an engine each | one engine |
|---|---|---|---|---|
"""
GROUPS = (
    ("lpkit-min-p", "lpkit-penalties"),
    ("lpkit-dry", "lpkit-penalties"),
    ("lpkit-dry", "lpkit-min-p", "lpkit-no-repeat-ngram", "lpkit-penalties"),
)

TRAFFIC = """
## Memory traffic

What the functions of `lpkit.kernels` read from a GPU's memory and write there at most, in sizes of the logits, by
the model in `lpkit.kernels.traffic`; and the least time of that for {vocab:,} tokens by an H100's data sheet:
{cache} MB of L2 cache, {bandwidth} TB/s. [An H100](on-a-gpu.md#kernels) moves these bytes, at {reached} TB/s; for
256 rows it takes a fifth to two thirds more time, and for `exclude_top_choices_` four fifths. `lpkit bench --device
cuda` shows the prediction, at the speed of its floors, next to what it measures. *A token in every span*: so many
tokens stay in a row, evenly spread, that there is one in each {span:,} logits. In a model's rows few spans have
one; here the second look at a row reads it again, except for what the cache still holds.

| function | kernels | read | written | {rows} rows | {cached} rows | read, a token in every span | {rows} rows |
|---|---|---|---|---|---|---|---|
"""
ROWS, CACHED, TOKENS = 256, 64, 151_936
CACHE, BANDWIDTH, REACHED = 50, 3.35, 2.8
"""Megabytes, and terabytes per second, of an H100 (SXM); and what one was seen to reach."""


def page() -> str:
    """All reference plugins, as a page."""
    lines = []
    with fused_on_meta():
        first: dict[str, list[int]] = {}
        for name, cls, case in cases():
            found = {runner: steady(cls, case, runner) for runner in RUNNERS}
            counts = [step.launches for step in found.values()]
            if name in first:
                if counts == first[name]:
                    continue
                name, known = f"{name}, `{json.dumps(case['extra_args'])}`", name
            else:
                first[name], known = counts, name
            rule = f"{'sparse' if cls._sparse else 'dense'}, history {cls.history}"
            kernels = ", ".join(f"`{kernel}`" + f" x{n}" * (n > 1) for kernel, n in sorted(found["v2"].kernels.items()))
            may = budget(cls)
            above = any(may is not None and step.launches > may for step in found.values())
            cells = [name, rule, str(may), *map(str, counts), kernels]
            lines.append(f"| {' | '.join([*cells, REASONS[known] if above else ''])} |\n")
        several = together_table()
    return HEAD.format(sparse=SPARSE, history=WITH_HISTORY, dense=DENSE) + "".join(lines) + several + traffic_table()


def together_table() -> str:
    """Some plugins, and all, as a table."""
    known = {plugin[0]: plugin for plugin in plugins()}
    lines = []
    for names in (*GROUPS, tuple(known)):
        apart, one = (together([known[name] for name in names], apart) for apart in (True, False))
        shown = f"all {len(names)}" if len(names) == len(known) else ", ".join(names)
        cells = [shown, *(str(found[which]) for which in ("enters", "stays") for found in (apart, one))]
        lines.append(f"| {' | '.join(cells)} |\n")
    return TOGETHER + "".join(lines)


def traffic_table() -> str:
    """What each function of ``lpkit.kernels`` moves, as a table."""

    def least(found: Traffic) -> str:
        return f"{found.seconds(each, each) * 1e6:.0f} us"

    each, size, lines = 1 / BANDWIDTH / 1e12, ROWS * TOKENS * LOGIT, []
    for function, kernels in FUNCTIONS.items():
        passes = [PASSES[name] for name in kernels]
        few, most = (traffic(passes, ROWS, TOKENS, CACHE * 10**6, near) for near in (0.0, 1.0))
        cells = [
            f"`{function}`",
            ", ".join(f"`{name}`" for name in kernels),
            *(f"{share / size:.2g}" for share in (few.read, few.written)),
            least(few),
            least(traffic(passes, CACHED, TOKENS, CACHE * 10**6)),
            *((f"{most.read / size:.3g}", least(most)) if most != few else ("", "")),
        ]
        lines.append(f"| {' | '.join(cells)} |\n")
    head = TRAFFIC.format(
        vocab=TOKENS, cache=CACHE, bandwidth=BANDWIDTH, reached=REACHED, rows=ROWS, cached=CACHED, span=SPAN
    )
    return head + "".join(lines)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
