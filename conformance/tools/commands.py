"""Runs commands for the tools: returns their output, or raises with the reason of their failure."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

SHOWN = 4000
"""Characters from the end of what a command printed, in the message when it failed."""

OWN = ("PYTHON", "VIRTUAL_ENV", "LPKIT_")
"""Prefixes of environment variables that are specific to this process's environment."""


class CommandFailed(Exception):
    """A command did not do what it should; the message is the command and the end of what it printed."""


def output(command: Sequence[str], cwd: Path | None = None, env: Mapping[str, str] | None = None, code: int = 0) -> str:
    """Return a command's standard output.

    Raises:
        CommandFailed: it did not end with ``code``.
    """
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if done.returncode != code:
        said = (done.stdout + done.stderr).rstrip()[-SHOWN:]
        raise CommandFailed(f"{shlex.join(command)} ended with {done.returncode}:\n{said}")
    return done.stdout


def variables() -> dict[str, str]:
    """Return this process's variables for a command in another environment, without those specific to its own."""
    return {key: value for key, value in os.environ.items() if not key.startswith(OWN)}
