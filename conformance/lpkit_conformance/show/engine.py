"""The same request in a real vLLM on the CPU: its own stages, and its own sampler's choices.

At each step the sampler is called again with the same random numbers, and with processors that pass the logits on. The
toy speaks in place of the engine's model.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from lpkit import v1, v2

from lpkit_conformance.checks.engine.asks import Ask
from lpkit_conformance.engine.beyond_cpu import cut_in_torch
from lpkit_conformance.engine.child import hide_installed, reasoning_config
from lpkit_conformance.engine.process import ChildSide
from lpkit_conformance.engine.tiny import EngineSettings, TinyEngine, import_vllm
from lpkit_conformance.errors import UsageError
from lpkit_conformance.explanation.steps import MODEL
from lpkit_conformance.results import StepView
from lpkit_conformance.show.child import played
from lpkit_conformance.show.playing import Part, Processor, Seen, ShownRequest, notes_of, step_view
from lpkit_conformance.vllm_api.runners import V1, Runner

STAGES = "vLLM's stages"
"""Name of the steps of vLLM before, between and after the processors."""


class EngineSide:
    """The events of a request, for :mod:`.run`, in the process of the engine that serves it."""

    def __init__(self, _: ChildSide) -> None:
        self._events: Iterator[dict[str, Any]] = iter(())

    def begin(self, runner: Runner, job: dict[str, Any]) -> dict[str, Any]:
        """Start the engine, unless it is of another ``host``; return the first fields of :class:`.results.Show`."""
        torch.set_num_threads(1)
        version = import_vllm()
        sys.path[:0] = job["path"]
        self._events = played(job, f"a real vLLM {version}", partial(_Played, runner, job["model"]))
        first = next(self._events)
        return first if first.get("host", runner) != runner else {**first, **next(self._events, {})}

    def event(self) -> dict[str, Any] | None:
        """Return the next step, or a problem; None after the last."""
        return next(self._events, None)


class _Played:
    """A request in an engine, as :class:`.playing.Lockstep` has it.

    Args:
        path: of the model; empty: the toy.

    Attributes:
        plain: the reply without processors.
    """

    def __init__(self, runner: Runner, path: str, shown: ShownRequest) -> None:
        self._runner, self._shown, self._model = runner, shown, shown.model
        self._every = frozenset(range(len(shown.processors)))
        self._passing: frozenset[int] = frozenset()
        self._looking = False
        self._tokens: list[int] = []
        self._seen: Seen = []
        self._steps: list[StepView] = []
        self._parts: dict[int, Part] = {}
        extra: dict[str, Any] = {"model": path} if path else {}
        if (markers := self._model.thinking) is not None:
            extra["reasoning_config"] = reasoning_config({"start": markers.start, "end": markers.end})
        # The tiny model's rows are a multiple of 128 tokens wide; tokens that the toy lacks are impossible.
        width = self._model.vocab_size if path else -(-self._model.vocab_size // 128) * 128
        mode = "processed_logits"
        settings = EngineSettings(runner, 1, shown.room, width, logprobs_mode=mode, extra=extra, exact=True)
        hide_installed()
        classes = [self._class(number, processor) for number, processor in enumerate(shown.processors)]
        self._engine = TinyEngine(settings, classes)
        sampler = self._engine.model_runner.sampler
        if runner == V1:
            self._tap_v1(sampler)
        else:
            cut_in_torch(self._engine)
            self._tap_v2(sampler)
        self._submit("plain")
        while self._engine.busy:
            self._engine.step()
        self._engine.step()  # tells the runner that the request has finished
        self.plain = self._tokens

    def steps(self) -> Iterator[StepView]:
        """Yield the steps of the reply."""
        self._looking = True
        self._submit("shown")
        while self._engine.busy:
            self._engine.step()
            yield from self._steps
            self._steps.clear()

    def notes(self) -> tuple[str, ...]:
        """Return for each processor why it leaves the request to itself, as far as is known."""
        return notes_of([self._parts[number] for number in sorted(self._parts)], self._shown.greedy)

    def _submit(self, name: str) -> None:
        self._tokens = []
        params = {"ignore_eos": False, **self._shown.case.fields}
        if (error := self._engine.submit(Ask(name, tuple(self._shown.prompt), params))) is not None:
            raise UsageError(f"vLLM refuses the request: {error}")

    def _class(self, number: int, processor: Processor) -> type:
        """Return a class that vLLM loads: the processor, observed."""
        played = self

        class Observed(Part):
            def __init__(self, config: Any, *args: Any) -> None:
                config.model_config.lpkit_tokenizer = played._model.tokenizer
                super().__init__(number, processor, (config, *args))
                played._parts[number] = self

            def apply(self, logits: torch.Tensor, *context: Any) -> torch.Tensor:
                if number in played._passing:
                    return logits
                played._seen.append((STAGES, logits.clone()))
                after = super().apply(logits, *context)
                played._seen.append((self, after.clone()))
                return after

        interface: Any = (v1 if self._runner == V1 else v2).LogitsProcessor
        return types.new_class(processor.name, (Observed, interface))

    def _tap_v1(self, sampler: Any) -> None:
        forward, sample = sampler.forward, sampler.sample

        def sampled(logits: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            tokens, processed = sample(logits, *args, **kwargs)
            self._seen.append((STAGES, (logits if processed is None else processed).clone()))
            return tokens, processed

        def forwarded(logits: torch.Tensor, sampling_metadata: Any, *args: Any, **kwargs: Any) -> Any:
            states = [(generator, generator.get_state()) for generator in sampling_metadata.generators.values()]

            def run(raw: torch.Tensor) -> tuple[Any, int]:
                for generator, state in states:
                    generator.set_state(state)
                output = forward(raw, sampling_metadata, *args, **kwargs)
                return output, int(output.sampled_token_ids[0, 0])

            return self._look(logits, run)

        sampler.sample, sampler.forward = sampled, forwarded

    def _tap_v2(self, sampler: Any) -> None:
        sample = sampler.sample

        def run(raw: torch.Tensor, *args: Any, **kwargs: Any) -> tuple[Any, int]:
            tokens, processed = sample(raw, *args, **kwargs)
            self._seen.append((STAGES, processed.clone()))
            return (tokens, processed), int(tokens[0])

        def sampled(logits: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            return self._look(logits, lambda raw: run(raw, *args, **kwargs))

        sampler.sample = sampled

    def _look(self, logits: torch.Tensor, run: Callable[[torch.Tensor], tuple[Any, int]]) -> Any:
        """Let the sampler choose a token, and keep what it does and would do.

        Args:
            logits: the model's.
            run: calls the sampler; returns its output and the token.
        """
        raw, count = self._raw(logits), self._model.vocab_size

        def choose(passing: frozenset[int]) -> tuple[Any, int, Seen]:
            self._passing, self._seen = passing, [(MODEL, raw)]
            output, token = run(raw.clone())
            return output, token, [(stage, seen[:, :count].float()) for stage, seen in self._seen]

        if not self._looking:
            output, token, _ = choose(self._every)
        else:
            output, token, seen = choose(frozenset())
            _, plain, others = choose(self._every)
            alone = len(self._every) == 1
            without = [plain] if alone else [choose(frozenset({number}))[1] for number in sorted(self._every)]
            self._steps.append(step_view(self._model, token, plain, without, seen, others[-1][1][0]))
        self._tokens.append(token)
        return output

    def _raw(self, logits: torch.Tensor) -> torch.Tensor:
        if not self._model.toy:
            return logits.float().clone()
        row = self._model.logits([*self._shown.prompt, *self._tokens])
        return torch.nn.functional.pad(row, (0, logits.shape[1] - len(row)), value=-torch.inf).unsqueeze(0)
