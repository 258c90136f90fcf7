"""What can be wrong with what a user gave or has; the ``lpkit`` command shows each in one line, without a traceback.

    UserError
     + UsageError           a command's own arguments: targets, codes, names, devices
     + ProjectError         the project's pyproject.toml
     + CaseError            a case
     + FailureFileError     a saved failure, for lpkit replay
     + TraceError           a recorded trace
     + NotBridgeableError   what lpkit new --wrap was given
     + OutputError          a file or a folder that cannot be written
     + EngineUnavailable    the vLLM that a command needs
     + StandinError         what a plugin needs of vLLM, where there is only the stand-in

A plugin that cannot be loaded is the SDK's :class:`lpkit.loading.LoadError`: a finding, not the end of a command.
"""

from __future__ import annotations


class UserError(Exception):
    """``problem`` says what is wrong, ``remedy`` what to do ("" if unknown); ``details`` are for a developer."""

    def __init__(self, problem: str, remedy: str = "", details: str = "") -> None:
        super().__init__(problem, remedy, details)
        self.problem = problem
        self.remedy = remedy
        self.details = details

    def __str__(self) -> str:
        return f"{self.problem}; {self.remedy}" if self.remedy else self.problem


class UsageError(UserError, ValueError):
    """A command cannot start with these arguments: an unknown code, no target, a name that is taken."""


class ProjectError(UserError, ValueError):
    """The project's pyproject.toml cannot be used; says where and why."""


class CaseError(UserError, ValueError):
    """A case that cannot be used; says which and why."""


class FailureFileError(UserError, ValueError):
    """A file that holds no failure that can be run; says what does not fit, with the nearest right name."""


class TraceError(UserError, ValueError):
    """A trace is missing or malformed; the message names the file, the line, what is wrong and what was expected."""

    def __init__(self, message: str, *, path: str | None = None, line: int | None = None) -> None:
        location = path or "trace"
        super().__init__(f"{location}:{line}: {message}" if line is not None else f"{location}: {message}")


class NotBridgeableError(UserError, ValueError):
    """The target cannot be bridged; the message says what it is, and what to do."""


class OutputError(UserError):
    """A file or a folder cannot be written."""


class StandinError(UserError):
    """A plugin uses more of vLLM than the stand-in has: no verdict on the plugin."""


class EngineUnavailable(UserError):
    """There is no vLLM here, or one that does not work; the message is one line."""
