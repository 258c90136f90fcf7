"""A tiny real vLLM engine on a chosen model runner, stepped by hand in this process.

Which runner vLLM uses is decided by environment variables, and for V2 on a machine without a GPU by which Triton
backends exist, at the moment vLLM is imported. So one process can serve one runner only: call ``prepare`` first, or
better, use ``process.EngineProcess``, which runs each engine in its own process.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.metadata
import importlib.util
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from lpkit_conformance.checks.engine.asks import Answer, Ask
from lpkit_conformance.engine import beyond_cpu, following, model
from lpkit_conformance.vllm_api.runners import V1, V2, Runner

RUNNER_MODULES: Mapping[Runner, str] = {
    V1: "vllm.v1.worker.gpu_model_runner",
    V2: "vllm.v1.worker.gpu.model_runner",
}
"""Modules of the classes from which all model runners derive, on CPUs as on GPUs."""

SMALL_BLOCK = 16
"""Tokens; vLLM's blocks on a CPU are larger."""

MOST_BLOCKS = 1024
"""An engine whose requests fit into this many blocks gets no more: filling vLLM's GiB takes as long as a start."""

_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_DISABLE_REQUEST_ID_RANDOMIZATION": "1",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "CUDA_VISIBLE_DEVICES": "",
    # Eager throughout: compiling one sampling helper would cost more than everything else together.
    "TORCHDYNAMO_DISABLE": "1",
}
_RUNNER_ENVIRONMENT: Mapping[str, Mapping[str, str]] = {
    V1: {"VLLM_USE_V2_MODEL_RUNNER": "0"},
    V2: {"VLLM_USE_V2_MODEL_RUNNER": "1", "TRITON_INTERPRET": "1"},
}
_prepared: Runner | None = None


class EngineError(RuntimeError):
    """vLLM is absent or broken, the engine did not start, or it runs on another runner than asked for."""


@dataclass(frozen=True)
class EngineSettings:
    """Settings of an engine. ``extra`` goes to ``vllm.LLM`` as it is.

    ``exact``: with the model that does not round (:mod:`lpkit_conformance.engine.model`).
    """

    runner: Runner
    max_num_seqs: int = 8
    max_model_len: int = 256
    vocab_size: int = 512
    max_num_batched_tokens: int | None = None
    num_gpu_blocks_override: int | None = None
    block_size: int | None = None
    logprobs_mode: str = "raw_logits"
    seed: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict)
    exact: bool = False

    def summary(self) -> dict[str, Any]:
        """The settings that shape a trace, as JSON values; what is None is left to vLLM."""
        values = asdict(self)
        for name in ("runner", "logprobs_mode", "extra", "exact"):
            del values[name]
        values.update(self.extra)
        return values


def prepare(runner: Runner) -> None:
    """Make this process import a vLLM that uses ``runner``; idempotent.

    Raises EngineError when vLLM is not installed, was already imported some other way, or (V2) Triton is missing.
    """
    global _prepared
    if runner not in _RUNNER_ENVIRONMENT:
        raise EngineError(f"unknown runner {runner!r}: expected 'v1' or 'v2'")
    if _prepared == runner:
        return
    if _prepared is not None:
        raise EngineError(f"this process runs vLLM's {_prepared} runner: {runner} needs its own process")
    if "vllm" in sys.modules:
        raise EngineError("vLLM was imported before the engine's environment was set: start a fresh process")
    if importlib.util.find_spec("vllm") is None:
        raise EngineError("vLLM is not installed in this Python")
    os.environ.update(_ENVIRONMENT)
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.update(_RUNNER_ENVIRONMENT[runner])
    if runner == V2:
        _register_interpreter_backend()
        _answer_for_vllm()
    _prepared = runner


def _register_interpreter_backend() -> None:
    """Give Triton a backend called "cpu", which vLLM takes as leave to use its V2 kernels without a GPU.

    Under TRITON_INTERPRET=1 nothing is ever compiled, so the driver only has to say that it is there.
    """
    try:
        backends = importlib.import_module("triton.backends")
    except ImportError as error:
        raise EngineError(f"the V2 runner needs Triton's interpreter: {error}") from error
    backends.backends["cpu"] = backends.Backend(compiler=None, driver=_InterpreterDriver)
    beyond_cpu.hasten_interpreter()
    beyond_cpu.mend_interpreter()


def _answer_for_vllm() -> None:
    """Let vLLM find its own version where it was installed as ``vllm-cpu``, the way its platform detection does.

    vLLM asks for the version of "vllm" when it looks for Triton. Without a version it takes Triton for absent.
    """
    real = importlib.metadata.version

    def version(distribution_name: str) -> str:
        try:
            return real(distribution_name)
        except importlib.metadata.PackageNotFoundError:
            if distribution_name != "vllm":
                raise
            return real("vllm-cpu") + "+cpu"

    importlib.metadata.version = version


class _InterpreterDriver:
    @classmethod
    def is_active(cls) -> bool:
        return True

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int | None = None) -> int:
        return 0


@cache
def import_vllm() -> str:
    """Import what an engine needs of vLLM, and return vLLM's version. Raises EngineError when it cannot be imported.

    What was imported stays: looking for garbage in it takes seconds, during the imports and, where vLLM thaws it and
    freezes it again, whenever an engine starts or ends. From here on vLLM does not.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        vllm = importlib.import_module("vllm")
        vllm.LLM, vllm.SamplingParams  # noqa: B018 (imported only now)
    except Exception as error:
        raise EngineError(f"vLLM cannot be imported: {type(error).__name__}: {error}") from error
    finally:
        if collects:
            gc.enable()
    gc.freeze()
    vars(gc).update(freeze=lambda: None, unfreeze=lambda: None)
    return str(vllm.__version__)


class TinyEngine:
    """``with TinyEngine(settings, processors) as engine: engine.generate(asks)``.

    ``logits_processors``: classes or ``module:Class`` strings, as ``vllm.LLM`` takes them. Raises EngineError when
    vLLM cannot be imported or runs on another runner; what the engine itself raises at start-up is passed on.
    """

    def __init__(self, settings: EngineSettings, logits_processors: Sequence[str | type] = ()) -> None:
        prepare(settings.runner)
        self.version = import_vllm()
        if settings.extra.get("async_scheduling"):
            beyond_cpu.allow_async_scheduling()
        vllm = importlib.import_module("vllm")
        self._sampling_params = vllm.SamplingParams
        self._texts: dict[str, tuple[int, ...]] | None = None
        self.drafted: Counter[str] = Counter()
        self.settings = settings
        arguments: dict[str, Any] = {
            "skip_tokenizer_init": True,
            "dtype": "float32",
            "enforce_eager": True,
            "enable_prefix_caching": False,
            "disable_log_stats": True,
            "async_scheduling": False,
            "max_model_len": settings.max_model_len,
            "max_num_seqs": settings.max_num_seqs,
            "max_logprobs": settings.vocab_size,
            "logprobs_mode": settings.logprobs_mode,
            "seed": settings.seed,
        }
        blocks = 2 * settings.max_num_seqs * (settings.max_model_len // SMALL_BLOCK + 1)
        if blocks <= MOST_BLOCKS:
            arguments["num_gpu_blocks_override"] = blocks
        for name in ("max_num_batched_tokens", "num_gpu_blocks_override", "block_size"):
            if (value := getattr(settings, name)) is not None:
                arguments[name] = value
        if logits_processors:
            arguments["logits_processors"] = list(logits_processors)
        arguments.update(settings.extra)
        try:
            with tempfile.TemporaryDirectory(prefix="lpkit-engine-", ignore_cleanup_errors=True) as folder:
                model.write(Path(folder), settings.vocab_size, settings.max_model_len, settings.exact)
                self.llm: Any = vllm.LLM(**{"model": folder, **arguments})
            self.model_runner: Any = self.llm.llm_engine.model_executor.driver_worker.worker.model_runner
            bases = {base.__module__ for base in type(self.model_runner).__mro__}
            if RUNNER_MODULES[settings.runner] not in bases:
                raise EngineError(
                    f"asked for the {settings.runner} runner, but vLLM {self.version} runs {self.runner_class}"
                )
        except BaseException:
            self.close()
            raise

    @property
    def runner_class(self) -> str:
        """Full name of the model runner's class."""
        cls = type(self.model_runner)
        return f"{cls.__module__}.{cls.__qualname__}"

    def follow_texts(self) -> None:
        """Let requests follow ``Ask.text``: on V1, and with drafts; otherwise V2 does by ``following.replay``."""
        self._texts = {}
        if self.settings.runner == V1:
            following.follow(self.model_runner, self._texts)
        else:
            self.drafted = following.follow_drafts(self.model_runner, self._texts)

    def submit(self, ask: Ask) -> str | None:
        """Send a request; the engine's reason when it is refused, else None."""
        values: dict[str, Any] = {"detokenize": False, "ignore_eos": True, **ask.params}
        if self._texts is not None:
            self._texts[ask.request_id] = ask.text
        elif ask.text:
            values["trace_decode_token_ids"] = list(ask.text)
        if ask.logits:
            values.setdefault("logprobs", self.settings.vocab_size)
        try:
            params = self._sampling_params(**values)
            self.llm.llm_engine.add_request(ask.request_id, {"prompt_token_ids": list(ask.prompt_token_ids)}, params)
        except Exception as error:
            # The validation error of newer vLLM releases is not a ValueError.
            if isinstance(error, ValueError | TypeError) or type(error).__name__ == "VLLMValidationError":
                return f"{type(error).__name__}: {error}"
            raise
        return None

    def abort(self, request_ids: Iterable[str]) -> None:
        self.llm.llm_engine.abort_request(list(request_ids))

    @property
    def busy(self) -> bool:
        return bool(self.llm.llm_engine.has_unfinished_requests())

    def step(self) -> list[Any]:
        """One scheduler step; vLLM's RequestOutput objects."""
        outputs: list[Any] = self.llm.llm_engine.step()
        return outputs

    def generate(self, asks: Iterable[Ask]) -> dict[str, Answer]:
        """Run the requests to their ends, each sent and aborted at its own step; answers by request id."""
        waiting = sorted(asks, key=lambda ask: ask.at)
        answers = {ask.request_id: Answer(ask.request_id) for ask in waiting}
        aborts = [(ask.abort_at, ask.request_id) for ask in waiting if ask.abort_at is not None]
        step = 0
        while waiting or self.busy:
            while waiting and waiting[0].at <= step:
                self._send(waiting.pop(0), answers)
            due = [name for at, name in aborts if at == step]
            if due:
                self.abort(due)
                for name in due:
                    answers[name].finish_reason = answers[name].finish_reason or "abort"
            for output in self.step():
                self._read(output, answers)
            step += 1
        self.step()  # tells the runner about the last finished requests
        return answers

    def _send(self, ask: Ask, answers: Mapping[str, Answer]) -> None:
        answer = answers[ask.request_id]
        answer.error = self.submit(ask)
        answer.followed = bool(ask.text) and answer.error is None
        if ask.text and answer.error is not None:
            answer.error = self.submit(replace(ask, text=()))

    def _read(self, output: Any, answers: Mapping[str, Answer]) -> None:
        answer = answers.get(output.request_id)
        if answer is None:
            return
        completion = output.outputs[0]
        answer.token_ids = list(completion.token_ids)
        if output.finished:
            answer.finish_reason = completion.finish_reason
            if completion.logprobs is not None:
                answer.rows = self._dense(completion.logprobs)

    def _dense(self, positions: Sequence[Mapping[int, Any]]) -> Any:
        import numpy as np

        rows = np.full((len(positions), self.settings.vocab_size), np.nan, dtype=np.float32)
        for row, entries in zip(rows, positions, strict=True):
            for token, entry in entries.items():
                row[token] = entry.logprob
        return rows

    def close(self) -> None:
        """Shut the engine down, so that another can start in this process."""
        if (llm := self.__dict__.pop("llm", None)) is not None:
            self.__dict__.pop("model_runner", None)
            with contextlib.suppress(Exception):
                llm.llm_engine.engine_core.shutdown()
            del llm
        gc.collect()
        with contextlib.suppress(Exception):
            importlib.import_module("vllm.distributed.parallel_state").cleanup_dist_env_and_memory()

    def __enter__(self) -> TinyEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
