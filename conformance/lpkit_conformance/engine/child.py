"""The engine's side of a check. :mod:`.checking` calls it by name; the plugin's code runs only in this process."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from lpkit.interfaces.lookup import GROUP

from lpkit_conformance import traces
from lpkit_conformance.checks.engine.asks import Answer, Ask, Workload
from lpkit_conformance.checks.engine.evidence import Expected
from lpkit_conformance.engine import beyond_cpu, following, played, traced
from lpkit_conformance.engine import requests as workloads
from lpkit_conformance.engine.model import exact_rows
from lpkit_conformance.engine.process import ChildSide
from lpkit_conformance.engine.sizes import engine_settings
from lpkit_conformance.engine.tiny import EngineSettings
from lpkit_conformance.errors import CaseError
from lpkit_conformance.processes.codec import decode
from lpkit_conformance.settings.cases import Case, make_params
from lpkit_conformance.settings.plan import Plan
from lpkit_conformance.vllm_api.runners import V1, Runner
from lpkit_conformance.vllm_api.tokenizer import load, tokenizer_folder

if TYPE_CHECKING:
    from lpkit_conformance.subject.subject import Subject
    from lpkit_conformance.suite.in_process import Session


class PluginSide:
    """A plugin in the process of its engine: one plugin and one runner.

    Args:
        side: starts the engines of this process.
    """

    def __init__(self, side: ChildSide, runner: Runner) -> None:
        self._side, self._runner = side, runner
        self._session: Session
        self._reasoning: Mapping[str, tuple[int, ...]] = {}
        self._options: dict[str, Any] = {}

    def survey(self, target: str, path: list[str], plan_data: dict[str, Any]) -> dict[str, Any]:
        """Import the plugin and tell what it is; raises what its module raises."""
        import torch

        torch.set_num_threads(1)
        from lpkit.loading import LoadError, interfaces_of, resolve_target

        from lpkit_conformance.explanation.findings import method_location
        from lpkit_conformance.settings.hosts import HOSTS
        from lpkit_conformance.suite.in_process import Session
        from lpkit_conformance.suite.load_failures import load_failure

        plan = decode(Plan, plan_data)
        os.environ.update(plan.environment)
        # What is selected are checks of the engine; this session only makes requests, on the reference runtime.
        plan = replace(plan, cases=in_one_engine(plan.cases), select=(), ignore=(), first=(), alone=False, device="cpu")
        self._reasoning = plan.cases[0].reasoning
        sys.path[:0] = path
        try:
            cls = resolve_target(target)
        except LoadError as error:
            return {"failure": load_failure(target, error, False)}
        hide_installed()
        self._session = session = Session(target, cls, plan)
        return {
            "interface": " and ".join(sorted(interfaces_of(cls))),
            "hosts": session.hosts,
            "second": _has("vllm.v1.worker.gpu.sample.logits_processor"),
            "location": method_location(cls, HOSTS[self._runner].told_by),
        }

    def _subjects(self) -> Sequence[Subject]:
        """The plugin in the reference runtime, once for each case."""
        return self._session.subjects(self._runner)

    def start(self, settings: EngineSettings, with_plugin: bool) -> str:
        """Start an engine for the plan, as :meth:`.ChildSide.start` does."""
        drafts = "speculative_config" in settings.extra
        self._options = _options(settings.extra)
        if not drafts:  # vLLM's own does not go with them
            settings = replace(settings, extra={**settings.extra, **following.replay(self._runner)})
        if self._reasoning:
            settings = replace(
                settings, extra={**settings.extra, "reasoning_config": reasoning_config(self._reasoning)}
            )
        if with_plugin:
            given = {"tokenizer": self._tokenizer(settings.vocab_size), "hf_overrides": dict(self._session.plan.model)}
            settings = replace(settings, extra={**settings.extra, **given, "skip_tokenizer_init": False})
        listeners: list[type] = []
        if self._session.plan.trace:  # it records the engine's calls
            recorders = importlib.import_module("lpkit_conformance.engine.recorders")
            listeners = [recorders.V1Recorder if self._runner == V1 else recorders.V2Listener]
        runner_class = self._side.start(settings, [self._session.cls, *listeners] if with_plugin else ())
        if self._runner == V1 or drafts:
            self._side.engine.follow_texts()
        return runner_class

    def _tokenizer(self, vocab_size: int) -> str:
        """The folder of the project's tokenizer, or of one with the words that the cases name."""
        return self._session.plan.tokenizer or tokenizer_folder(vocab_size, self._session.words)

    def make_workload(self) -> Workload:
        """The requests for this plugin, or those of the plan's program or trace; asks its ``validate_params``."""
        from lpkit_conformance.hosts import drive, parts_of

        if self._session.plan.trace is not None:
            self._session.acting_cases()
        usual = [[subject.cases[n] for n in subject.variants] for subject in self._subjects()]
        # The first of each list, then the second of each, and so on.
        cases = [items[n] for n in range(max(map(len, usual))) for items in usual if n < len(items)]
        asked = parts_of(self._runner).driver.asks_claim
        invariant = asked and drive(self._subjects()[0]).invariant
        plan = self._session.plan
        if plan.trace is not None:
            longest = engine_settings(self._runner, plan).max_model_len
            made = traced.workload(traces.load(plan.trace[0]), plan.trace[1], self._subjects(), invariant, longest)
        elif plan.program is not None:
            made = played.workload(plan.program, self._subjects()[0], invariant)
        else:
            made = workloads.make(self._runner, cases, invariant, list(self._refused()), plan.vocab_size, plan.seed)
        notes = (*self._session.notes, *made.notes)  # a case that was derived, for example
        batches = tuple(tuple(map(self._writable, batch)) for batch in made.batches)
        return replace(made, batches=batches, drafted=tuple(map(self._writable, made.drafted)), notes=notes)

    def _writable(self, ask: Ask) -> Ask:
        """The request, with its text up to a token that the plugin forbids: no model would write that."""
        text = list(ask.text)
        rows = self._processed(ask, text, self._model_rows(ask, text), True) if text else np.empty((0, 1))
        forbidden = np.isneginf(rows[np.arange(len(text)), text]).nonzero()[0]
        return replace(ask, text=tuple(text[: forbidden[0]])) if len(forbidden) else ask

    def serve_trace(self, asks: tuple[Ask, ...]) -> tuple[dict[str, Answer], list[str]]:
        """The requests of the plan's trace, mixed, and what of the trace the engine did."""
        recorders = importlib.import_module("lpkit_conformance.engine.recorders")
        replayed = self._session.plan.trace
        assert replayed is not None
        trace = traces.load(replayed[0])
        runner = self._side.engine.model_runner
        if traced.has_swaps(trace):
            beyond_cpu.separate_decodes(runner)
        tap = recorders.listen(self._runner, runner)
        return self._side.generate(asks), traced.met(trace, tap.steps)

    def serve_drafted(self, asks: tuple[Ask, ...]) -> tuple[dict[str, Answer], int]:
        """The requests, mixed, and the number of tokens that were drafted for them."""
        answers = self._side.generate(asks)
        return answers, self._side.engine.drafted.total()

    def _refused(self) -> Iterator[tuple[str, dict[str, Any]]]:
        from lpkit_conformance.checks.odd_arguments import odd_requests

        for subject in self._subjects()[:1]:
            for key, value, params in odd_requests(subject):
                if isinstance(subject.plugin.refusal(params), ValueError):  # another exception is LP103's business
                    yield f"{key}={value!r}", dict(params.extra_args or {})

    def serve_alone(self, asks: tuple[Ask, ...]) -> dict[str, Answer]:
        """One request after the other."""
        answers: dict[str, Answer] = {}
        for ask in asks:
            answers.update(self._side.generate((replace(ask, at=0, abort_at=None),)))
        return answers

    def reference(self, tokens: dict[str, list[int]], asks: dict[str, Ask]) -> dict[str, Expected]:
        """The model's logits through the reference runtime, each request alone in its own instance."""
        return {name: self._expected(asks[name], ids) for name, ids in tokens.items()}

    def model_rounds(self) -> bool:
        """True if the running engine, which has no plugin, gives different logits than the model should have."""
        asks = workloads.make(self._runner, [Case()], False, [], self._session.plan.vocab_size, 0).batches[0]
        answers = self._side.generate(tuple(replace(ask, params={**ask.params, "temperature": 0.0}) for ask in asks))
        return any(
            not np.array_equal(answers[ask.request_id].rows, self._model_rows(ask, answers[ask.request_id].token_ids))
            for ask in asks
            if answers[ask.request_id].rows is not None
        )

    def hint(self) -> str:
        """Explain why the plugin changed nothing, as far as the arguments tell."""
        return self._session.hint()

    def _expected(self, ask: Ask, tokens: list[int]) -> Expected:
        raw = self._model_rows(ask, tokens)
        return Expected(self._processed(ask, tokens, raw, True), self._processed(ask, tokens, raw, False))

    def _model_rows(self, ask: Ask, tokens: list[int]) -> Any:
        """The model's logits float32 ``[tokens, vocab]`` at every position of an answer."""
        return exact_rows(self._session.plan.vocab_size, [ask.prompt_token_ids[-1], *tokens[:-1]]).numpy()

    def _processed(self, ask: Ask, tokens: list[int], raw: Any, with_plugin: bool) -> Any:
        """Processed logits ``[tokens, vocab]`` of a request that is alone in the reference runtime."""
        import torch
        from lpkit.runtime import LogitsSource, Request, ThinkingMarkers

        from lpkit_conformance.hosts import parts_of

        class Recorded(LogitsSource):
            """A model that gives the rows of a table."""

            def rows(self, keys: Any) -> torch.Tensor:
                return torch.stack([table[position - len(ask.prompt_token_ids) + 1] for _, position in keys])

        table = torch.tensor(raw)
        settings = engine_settings(self._runner, self._session.plan)
        source = Recorded(raw.shape[1], device="cpu")
        engine = parts_of(self._runner).engine(
            [self._session.cls] if with_plugin else [],
            source,
            max_num_seqs=settings.max_num_seqs,
            max_model_len=settings.max_model_len,
            thinking=ThinkingMarkers(**self._reasoning) if self._reasoning else None,
            tokenizer=partial(load, self._tokenizer(raw.shape[1])),
            hf_config=self._session.plan.model,
            **self._options,
        )
        params = make_params(ask.params)
        request = Request(ask.request_id, params, list(ask.prompt_token_ids), len(tokens))
        engine.add(request)
        rows = []
        for token in tokens:
            step = engine.step(force={ask.request_id: token})
            assert step.processed is not None
            rows.append(step.processed[0].float().clone())
        return torch.stack(rows).numpy()


def _has(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False


def hide_installed() -> None:
    """Let vLLM see no installed processors: with them the plugin would be loaded twice, and others with it."""
    real = importlib.metadata.entry_points

    def entry_points(**select: Any) -> Any:
        entries = real(**select)
        return type(entries)(()) if select.get("group") == GROUP else entries

    importlib.metadata.entry_points = entry_points
    for name in ("vllm.v1.sample.logits_processor", "vllm.v1.worker.gpu.sample.logits_processor.loader"):
        # Where it was imported by name already.
        module = sys.modules.get(name)
        if module is not None and getattr(module, "entry_points", None) is real:
            vars(module)["entry_points"] = entry_points


def _options(extra: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments for an engine of the reference runtime with the same asynchronous scheduling and drafts."""
    options: dict[str, Any] = {"async_scheduling": bool(extra.get("async_scheduling"))}
    if speculation := extra.get("speculative_config"):
        options["num_speculative_tokens"] = speculation["num_speculative_tokens"]
    return options


def in_one_engine(cases: Sequence[Case]) -> tuple[Case, ...]:
    """The cases with one reasoning configuration, which an engine has for all of its requests.

    Raises:
        CaseError: if they name several.
    """
    named = [case.reasoning for case in cases if case.reasoning]
    if any(markers != named[0] for markers in named):
        raise CaseError("the cases name different reasoning markers", "one engine has one: check the cases one by one")
    return tuple(replace(case, reasoning=named[0]) for case in cases) if named else tuple(cases)


def reasoning_config(markers: Mapping[str, tuple[int, ...]]) -> Any:
    """vLLM's own configuration, with token ids in place of the texts that it would look up in a tokenizer."""
    from lpkit.runtime import ThinkingMarkers

    config = importlib.import_module("vllm.config.reasoning").ReasoningConfig()
    for name, value in vars(ThinkingMarkers(**markers).as_config()).items():
        if name.endswith("token_ids"):
            setattr(config, f"_{name}", value)
    return config
