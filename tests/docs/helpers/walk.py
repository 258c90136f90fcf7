"""A reader that follows the instructions of a page, in its own folder and environment."""

from __future__ import annotations

import os
import shlex
import subprocess
import sysconfig
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import indent

import pytest
from markdown_blocks import Block, matches

ROOT = Path(__file__).resolve().parents[3]
SOURCES = os.pathsep.join(str(ROOT / folder) for folder in ("sdk", "conformance", "cli"))
MARKS = frozenset({"", "not run", "part of", "file", "edit", "undo", "exit code"})
"""The comments that a block may have above it."""


class Walk:
    """A reader who types the commands in: a folder, an environment of its own, and the folder they stand in.

    Args:
        check_options: are added to each ``lpkit check``.
    """

    def __init__(self, folder: Path, page: Path, check_options: Sequence[str] = ()) -> None:
        self.page = page.name
        self.folder = folder / "reader"
        self.folder.mkdir()
        self._before: dict[Path, str] = {}
        self._environment = reader_environment(folder / "env", check_options)

    def through(self, page: Sequence[Block]) -> None:
        """Carry out each block of a page, and compare the output with the page."""
        printed = ""
        for block in page:
            where = f"{self.page}:{block.line}"
            if block.mark == "not run":
                continue
            if block.mark == "part of":
                text = (self.folder / block.value).read_text(encoding="utf-8")
                # What belongs to a class is shown without its indentation.
                assert block.text in text or indent(block.text, "    ") in text, f"{where}: not in {block.value}"
            elif block.mark == "file":
                self.write(block)
            elif block.mark == "edit":
                self.edit(block)
            elif block.language == "bash":
                if block.mark == "undo":
                    self.undo()
                code, printed = self.run(block.text)
                assert code == (int(block.value) if block.mark == "exit code" else 0), f"{where}:\n{printed}"
            elif block.language == "text":
                assert matches(block.text, printed), (
                    f"{where}: the page says\n{block.text}\nand this is printed\n{printed}"
                )
            else:
                pytest.fail(f"{where}: nobody runs or compares this block")

    def write(self, block: Block) -> None:
        """Write a block to the file that its comment names."""
        (self.folder / block.value).write_text(block.text, encoding="utf-8")

    def run(self, script: str) -> tuple[int, str]:
        """(exit code, output) of a bash block; a ``cd`` in it lasts."""
        standing = self.folder.parent / "standing"
        done = subprocess.run(
            ["bash", "-c", f"set -e\ntrap 'pwd > {shlex.quote(str(standing))}' EXIT\n{script}"],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        self.folder = Path(standing.read_text(encoding="utf-8").strip())
        return done.returncode, done.stdout

    def edit(self, block: Block) -> None:
        """Apply a diff block to the file that its comment names."""
        path = self.folder / block.value
        text = path.read_text(encoding="utf-8")
        self._before.setdefault(path, text)
        lines = block.text.splitlines(keepends=True)
        old = "".join(line[1:] for line in lines if line[0] in " -")
        new = "".join(line[1:] for line in lines if line[0] in " +")
        assert text.count(old) == 1, f"{self.page}:{block.line}: not exactly once in {block.value}:\n{old}"
        path.write_text(text.replace(old, new), encoding="utf-8")

    def undo(self) -> None:
        """Take all edits back."""
        for path, text in self._before.items():
            path.write_text(text, encoding="utf-8")
        self._before.clear()


def reader_environment(folder: Path, check_options: Sequence[str]) -> Mapping[str, str]:
    """Variables for a venv that sees this environment's packages, and has lpkit, pip and pytest as commands.

    pip installs into the venv without downloading: the plugin's dependencies are there already.
    """
    venv.create(folder, with_pip=False)
    variables = {"base": str(folder), "platbase": str(folder)}
    site = Path(sysconfig.get_path("purelib", "posix_prefix", variables))
    parents = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (site / "parent.pth").write_text("\n".join(sorted(parents)), encoding="utf-8")
    scripts = folder / "bin"
    offline_pip = Path(__file__).with_name("offline_pip.py")
    checks = f'[ "$1" = check ] && set -- "$@" {shlex.join(check_options)}\n'
    for command, before, runs in (
        ("lpkit", checks, "-m lpkit_cli.app"),
        ("pytest", "", "-m pytest -p no:xdist"),
        ("pip", "", f'"{offline_pip}"'),
    ):
        script = scripts / command
        script.write_text(f'#!/bin/sh\n{before}exec "{scripts / "python"}" {runs} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "PIP", "COV_"))}
    return {
        **inherited,
        "PATH": os.pathsep.join((str(scripts), inherited.get("PATH", ""))),
        "PYTHONPATH": SOURCES,
        "PYTHONUTF8": "1",
        "OMP_NUM_THREADS": "1",
        "VIRTUAL_ENV": str(folder),
    }
