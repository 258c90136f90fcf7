"""An engine in a child process, so that both runners can be used from one program.

    with EngineProcess(EngineSettings("v2"), ["my_plugin:MyProcessor"], sys_path=[folder]) as engine:
        print(engine.info["runner_class"])
        answers = engine.generate([Ask("a", (1, 2, 3), {"max_tokens": 5, "extra_args": {...}}, logits=True)])

The child is spawned, never forked, and prepared before anything of vLLM is imported there.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import pickle
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from lpkit_conformance.engine.tiny import Answer, Ask, EngineError, EngineSettings, TinyEngine, prepare
from lpkit_conformance.vllm_api.runners import Runner

START_TIMEOUT = 300.0


@dataclass(frozen=True)
class ClassRef:
    """``module:Class``, imported in the child and passed to the engine as a class object, not as a string."""

    target: str

    def resolve(self) -> type:
        """Import it. Raises ImportError, AttributeError, or TypeError when it is not a class."""
        cls = _resolve(self.target)
        if not isinstance(cls, type):
            raise TypeError(f"{self.target} is not a class")
        return cls


def _resolve(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


class RemoteError(EngineError):
    """What a function raised in the child: ``kind`` is the exception's type name, ``details`` its traceback."""

    def __init__(self, kind: str, message: str, details: str) -> None:
        super().__init__(f"{kind}: {message}" if message else kind)
        self.kind, self.message, self.details = kind, message, details


class Worker:
    """A process that is prepared for one runner and calls functions: the ground that engines stand on.

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
        context = multiprocessing.get_context("spawn")
        self._connection, other = context.Pipe()
        arguments = (other, [str(path) for path in sys_path], dict(env or {}), str(log or os.devnull))
        self._process = context.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        other.close()
        self.call(prepare, runner)

    def call(self, function: Callable[..., Any] | str, *args: Any, timeout: float = START_TIMEOUT) -> Any:
        """``function(*args)`` in the child. Both ways everything is pickled; functions go by their names.

        A string ``module:function`` is imported in the child only, from ``sys_path`` too.

        Raises RemoteError when it raised, EngineError when the child died or took longer than ``timeout`` seconds
        (it is then killed).
        """
        try:
            self._connection.send_bytes(pickle.dumps((function, args)))
            if not self._connection.poll(timeout):
                self.kill()
                raise EngineError(f"the engine's process did not answer within {timeout:.0f} s")
            good, value = pickle.loads(self._connection.recv_bytes())
        except (EOFError, OSError) as error:
            self._process.join(5)
            raise EngineError(f"the engine's process died (exit code {self._process.exitcode})") from error
        if not good:
            kind, message, details = value
            raise EngineError(message) if kind == EngineError.__name__ else RemoteError(kind, message, details)
        return value

    def kill(self) -> None:
        self._process.kill()
        self._process.join()

    def close(self) -> None:
        """End the child, and the engine with it; a second call does nothing."""
        self._connection.close()
        self._process.join(20)
        if self._process.is_alive():
            self.kill()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and not issubclass(kind, Exception):
            self.kill()  # interrupted: do not wait for a shut-down
        else:
            self.close()


class EngineProcess(Worker):
    """A ``TinyEngine`` in a child process: what the engine tests use.

    ``logits_processors``: ``module:Class`` strings (loaded by vLLM), ``ClassRef`` objects (passed as classes) or
    classes that can be pickled. An engine that does not start raises RemoteError with the engine's own error.
    """

    def __init__(
        self,
        settings: EngineSettings,
        logits_processors: Sequence[str | type | ClassRef] = (),
        *,
        sys_path: Sequence[str | Path] = (),
        env: Mapping[str, str] | None = None,
        log: Path | None = None,
    ) -> None:
        super().__init__(settings.runner, sys_path=sys_path, env=env, log=log)
        try:
            self.restart(settings, logits_processors)
        except BaseException:
            self.close()
            raise

    def restart(self, settings: EngineSettings, logits_processors: Sequence[str | type | ClassRef] = ()) -> None:
        """Stop the engine and start another on the same runner; saves importing vLLM again (about 5 s)."""
        self.settings = settings
        #: {"version": ..., "runner": "v1" or "v2", "runner_class": full name}, as found in the child
        self.info: dict[str, str] = self.call(_start, settings, tuple(logits_processors))

    def generate(self, asks: Iterable[Ask], timeout: float = START_TIMEOUT) -> dict[str, Answer]:
        """``TinyEngine.generate`` in the child."""
        answers: dict[str, Answer] = self.call(_generate, tuple(asks), timeout=timeout)
        return answers

    def inspect(self, function: Callable[..., Any] | str, *args: Any) -> Any:
        """``function(engine, *args)`` in the child, with the ``TinyEngine``; its answer must pickle."""
        return self.call(_inspect, function, args)

    def __enter__(self) -> EngineProcess:
        return self


# The child's side.

_engine: TinyEngine | None = None


def _serve(connection: Connection, sys_path: list[str], env: dict[str, str], log: str) -> None:
    sys.path[:0] = sys_path
    os.environ.update(env)
    # The engine's native code writes to the descriptors, not to sys.stdout.
    with Path(log).open("ab") as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
    while True:
        try:
            message = connection.recv_bytes()
        except (EOFError, OSError):
            break
        reply: tuple[bool, Any]
        try:
            function, args = pickle.loads(message)
            if isinstance(function, str):
                function = _resolve(function)
            reply = (True, function(*args))
            data = pickle.dumps(reply)
        except BaseException as error:
            reply = (False, (type(error).__name__, str(error), traceback.format_exc()))
            data = pickle.dumps(reply)
        connection.send_bytes(data)
    # The process ends with everything in it; an orderly shut-down would take seconds.
    if _engine is not None:
        _engine.remove_model()
    os._exit(0)


def _stop() -> None:
    global _engine
    if _engine is not None:
        _engine.close()
        _engine = None


def _start(settings: EngineSettings, logits_processors: Sequence[str | type | ClassRef]) -> dict[str, str]:
    global _engine
    _stop()
    prepare(settings.runner)
    resolved = [item.resolve() if isinstance(item, ClassRef) else item for item in logits_processors]
    _engine = TinyEngine(settings, resolved)
    return _engine.info


def _generate(asks: tuple[Ask, ...]) -> dict[str, Answer]:
    return _running().generate(asks)


def _inspect(function: Callable[..., Any] | str, args: tuple[Any, ...]) -> Any:
    found = _resolve(function) if isinstance(function, str) else function
    return found(_running(), *args)


def _running() -> TinyEngine:
    if _engine is None:
        raise EngineError("no engine is running in this process")
    return _engine
