"""An engine in a child process, so that both runners can be used from one program.

    with EngineProcess("v2", sys_path=[folder]) as engine:
        engine.start(EngineSettings("v2"), ["my_plugin:MyProcessor"])
        print(engine.runner_class)
        answers = engine.generate([Ask("a", (1, 2, 3), {"max_tokens": 5, "extra_args": {...}}, logits=True)])

The child is a :class:`lpkit_conformance.processes.supervise.Child`, prepared before it imports anything of vLLM. Each
job is a call of a method of its :class:`ChildSide`. Arguments and answers are pickled inside the JSON: they hold arrays
of logits and classes of plugins, which JSON has no form for. So trust an answer no more than the plugin that ran there.
"""

from __future__ import annotations

import base64
import pickle
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lpkit_conformance.checks.engine.asks import Answer, Ask
from lpkit_conformance.engine.tiny import EngineError, EngineSettings, TinyEngine, prepare
from lpkit_conformance.processes.child import Parent, resolve
from lpkit_conformance.processes.supervise import ONE_THREAD, Child, Lost, import_path
from lpkit_conformance.vllm_api.runners import Runner
from lpkit_conformance.watch import QUARANTINE, SWITCH

START_TIMEOUT = 300.0


class RemoteError(EngineError):
    """An exception of a function in the child: ``kind`` is the exception's type name, ``details`` its traceback."""

    def __init__(self, kind: str, message: str, details: str) -> None:
        super().__init__(f"{kind}: {message}" if message else kind)
        self.kind, self.message, self.details = kind, message, details


class ProcessLost(EngineError):
    """The child is gone, and the engine with it; ``loss`` says how."""

    def __init__(self, loss: Lost) -> None:
        super().__init__(loss.what if loss.kind == "exit" else f"the engine's process {loss.did}")
        self.loss = loss


class EngineProcess:
    """A process that is prepared for one runner, calls functions, and holds one engine at a time.

    ``sys_path``: folders put first on the child's ``sys.path``; a folder with a ``*.dist-info`` makes an installed
    plugin of what it describes. ``env``: variables set before vLLM is imported. ``log``: file for what the engine
    writes to stdout and stderr (None: discarded).
    """

    def __init__(
        self,
        runner: Runner,
        *,
        sys_path: Sequence[str | Path] = (),
        env: Mapping[str, str] | None = None,
        log: Path | None = None,
    ) -> None:
        # A server's watcher and quarantine have no part in a check, and threads only get in each other's way.
        self._child = Child(f"{__name__}:serve", {SWITCH: "", QUARANTINE: "", **ONE_THREAD, **(env or {})}, log)
        try:
            self._send([*(str(path) for path in sys_path), *import_path()], START_TIMEOUT)
            self.call(prepare, runner)
        except BaseException:
            self.close()
            raise

    def call(self, function: Callable[..., Any] | str, *args: Any, timeout: float = START_TIMEOUT) -> Any:
        """``function(*args)`` in the child. Arguments and answer are pickled; functions go by their names.

        A string ``module:function`` is imported in the child only, from ``sys_path`` too.

        Raises RemoteError when it raised, ProcessLost when the child ended, printed too much or took longer than
        ``timeout`` seconds (all of it is then ended).
        """
        return self._call("call", function, *args, timeout=timeout)

    def _call(self, method: str, *args: Any, timeout: float = START_TIMEOUT) -> Any:
        answer = self._send({"method": method, "args": _pack(args)}, timeout)
        if "value" in answer:
            return _unpack(answer["value"])
        error = RemoteError(**answer)
        raise EngineError(error.message) if error.kind == EngineError.__name__ else error

    def _send(self, job: Any, timeout: float) -> Any:
        try:
            return self._child.call(job, timeout)
        except Lost as loss:
            self.close()
            raise ProcessLost(loss) from None

    def start(self, settings: EngineSettings, logits_processors: Sequence[str | type] = ()) -> None:
        """Start an engine in place of the running engine.

        ``logits_processors``: ``module:Class`` strings (loaded by vLLM), or classes, which are pickled by their names.

        Raises RemoteError with the engine's own error.
        """
        self.runner_class: str = self._call("start", settings, tuple(logits_processors))

    def generate(self, asks: Iterable[Ask], timeout: float = START_TIMEOUT) -> dict[str, Answer]:
        """``TinyEngine.generate`` in the child."""
        answers: dict[str, Answer] = self._call("generate", tuple(asks), timeout=timeout)
        return answers

    def inspect(self, function: Callable[..., Any] | str, *args: Any) -> Any:
        """``function(engine, *args)`` in the child, with the ``TinyEngine``; its answer must pickle."""
        return self._call("inspect", function, *args)

    def keep(self, made: str, *args: Any, timeout: float = START_TIMEOUT) -> None:
        """Keep ``made(side, *args)`` in the child, with its :class:`ChildSide`, for :meth:`ask`."""
        self._call("keep", made, *args, timeout=timeout)

    def ask(self, method: str, *args: Any, timeout: float = START_TIMEOUT) -> Any:
        """Call a method of what :meth:`keep` made."""
        return self._call("ask", method, *args, timeout=timeout)

    def close(self) -> None:
        """End the child and all that it has started, at once: an orderly shut-down would take seconds."""
        self._child.end()

    def __enter__(self) -> EngineProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ChildSide:
    """The child's engine, the object that it keeps, and the calls that it answers."""

    def __init__(self) -> None:
        self._engine: TinyEngine | None = None
        self._kept: Any = None

    @property
    def engine(self) -> TinyEngine:
        """The engine of this process. Raises EngineError if none runs."""
        if self._engine is None:
            raise EngineError("no engine is running in this process")
        return self._engine

    def call(self, function: Callable[..., Any] | str, *args: Any) -> Any:
        """Call a function, given itself or by its name."""
        return (resolve(function) if isinstance(function, str) else function)(*args)

    def inspect(self, function: Callable[..., Any] | str, *args: Any) -> Any:
        """Call a function with the engine."""
        return self.call(function, self.engine, *args)

    def start(self, settings: EngineSettings, logits_processors: Sequence[str | type]) -> str:
        """Start an engine in place of the running engine. Return its runner's class, or raise the engine's error."""
        self.stop()
        self._engine = TinyEngine(settings, logits_processors)
        return self._engine.runner_class

    def stop(self) -> None:
        """End the engine, if one runs."""
        if self._engine is not None:
            engine, self._engine = self._engine, None
            engine.close()

    def generate(self, asks: tuple[Ask, ...]) -> dict[str, Answer]:
        """Serve the requests mixed, as their arrival steps say."""
        return self.engine.generate(asks)

    def keep(self, made: str, *args: Any) -> None:
        """Make the object whose methods :meth:`ask` calls."""
        self._kept = resolve(made)(self, *args)

    def ask(self, method: str, *args: Any) -> Any:
        """Call a method of the object."""
        return getattr(self._kept, method)(*args)


def serve(parent: Parent) -> None:
    """Entry of the child: answer calls until there are no more."""
    sys.path[:] = parent.job()
    side = ChildSide()
    while (call := parent.job()) is not None:
        try:
            answer = {"value": _pack(getattr(side, call["method"])(*_unpack(call["args"])))}
        except BaseException as error:
            answer = {"kind": type(error).__name__, "message": str(error), "details": traceback.format_exc()}
        parent.answer(answer)


def _pack(value: Any) -> str:
    return base64.b64encode(pickle.dumps(value)).decode("ascii")


def _unpack(text: str) -> Any:
    return pickle.loads(base64.b64decode(text))
