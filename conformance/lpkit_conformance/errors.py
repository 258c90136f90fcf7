"""Errors in a user's input or setup; the ``lpkit`` command shows each in one line, without a traceback.

    UserError
     + UsageError           a command's own arguments: targets, codes, names, devices
     + ProjectError         the project's pyproject.toml
     + CaseError            a case
     + FailureFileError     a saved failure, for lpkit replay
     + TraceError           a recorded trace
     + NotBridgeableError   the target of lpkit new --wrap
     + OutputError          a file or a folder that cannot be written
     + EngineUnavailable    the vLLM that a command needs
     + StandinError         a part of vLLM that a plugin needs and the stand-in lacks

A plugin that cannot be loaded is the SDK's :class:`lpkit.loading.LoadError`: a finding, not the end of a command.
"""

from __future__ import annotations


class UserError(Exception):
    """``problem`` describes the error, ``remedy`` its correction ("" if unknown); ``details`` are for a developer."""

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
    """The project's pyproject.toml cannot be used; the message names the position and the reason."""


class CaseError(UserError, ValueError):
    """A case that cannot be used; the message names the case and the reason."""


class FailureFileError(UserError, ValueError):
    """A file without a failure that can be run; the message names the invalid entry and the nearest valid name."""


class TraceError(UserError, ValueError):
    """A trace is missing or malformed; the message names the file, the line, what is wrong and what was expected."""

    def __init__(self, message: str, *, path: str | None = None, line: int | None = None) -> None:
        location = path or "trace"
        super().__init__(f"{location}:{line}: {message}" if line is not None else f"{location}: {message}")


class NotBridgeableError(UserError, ValueError):
    """The target cannot be bridged; the message names its kind and an alternative."""


class OutputError(UserError):
    """A file or a folder cannot be written."""


class StandinError(UserError):
    """A plugin uses more of vLLM than the stand-in has: no verdict on the plugin."""


class EngineUnavailable(UserError):
    """vLLM is not installed, or does not work; the message is one line."""
