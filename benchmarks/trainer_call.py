"""Memory and time of ``lpkit.train.processed_logprobs`` on a whole response, next to one token per ``apply``.

``python benchmarks/trainer_call.py [--tokens 512 4096] [--vocab 152064]``

Each number is measured in a process of its own, on one thread. Memory is what it held at most beyond the logits and
their gradient. Time is the process's own (user), which other programs on the machine change little.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource

from plugins_here import load

PLUGINS = {
    "lpkit-min-p": ("lpkit_min_p.processor:MinP", {"threshold": 0.05}),
    "lpkit-penalties": ("lpkit_penalties.processor:Penalties", {"repetition": 1.3, "frequency": 0.2}),
}
WAYS = {"whole": 2**26, "token by token": 1}


def measure(plugin: str, way: str, tokens: int, vocab: int, backward: bool) -> tuple[float, float]:
    """Seconds of the process, and MiB."""
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch
    from lpkit import train

    torch.set_num_threads(1)
    target, parameters = PLUGINS[plugin]
    cls = load(target)
    generator = torch.Generator().manual_seed(0)

    def call(count: int) -> tuple[float, float]:
        logits = torch.empty(count, vocab).normal_(generator=generator)
        response = logits.argmax(-1).tolist()
        logits.requires_grad_(backward)
        before = resource.getrusage(resource.RUSAGE_SELF)
        logprobs = train.processed_logprobs(
            cls, parameters, list(range(1, 257)), response, logits, sampling={"temperature": 0.8}, chunk_bytes=WAYS[way]
        )
        held = 0
        if backward:
            logprobs.sum().backward()
            held = logits.numel() * 4 // 1024
        after = resource.getrusage(resource.RUSAGE_SELF)
        return after.ru_utime - before.ru_utime, (after.ru_maxrss - before.ru_maxrss - held) / 1024

    call(2)
    return call(tokens)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, nargs="+", default=[512, 4096])
    parser.add_argument("--vocab", type=int, default=152_064)
    parser.add_argument("--plugins", nargs="+", choices=PLUGINS, default=list(PLUGINS))
    options = parser.parse_args()
    print("| plugin | tokens | | forward | memory | and backward | memory |")
    print("|---|---:|---|---:|---:|---:|---:|")
    context = multiprocessing.get_context("spawn")
    for plugin in options.plugins:
        for tokens in options.tokens:
            for way in WAYS:
                cells = []
                for backward in (False, True):
                    with context.Pool(1) as pool:
                        seconds, mebibytes = pool.apply(measure, (plugin, way, tokens, options.vocab, backward))
                    cells += [f"{seconds:.1f} s", f"{max(0.0, mebibytes):,.0f} MiB"]
                print(f"| {plugin} | {tokens:,} | {way} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
