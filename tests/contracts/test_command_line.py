"""Commands, arguments, options and their defaults; and the codes of the checks."""

from __future__ import annotations

import enum
import inspect
import json
import typing
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from golden import FOLDER, hold
from lpkit_cli.app import app, main
from lpkit_conformance.checks.catalogue import all_checks
from typer.testing import CliRunner


def parameters(callback: Any) -> Iterator[dict[str, Any]]:
    """Return the parameters of a command's callback, by its signature."""
    hints = typing.get_type_hints(callback, include_extras=True)
    for name, item in inspect.signature(callback).parameters.items():
        if hints[name] is typer.Context:  # nothing that a user gives
            continue
        annotation, info = typing.get_args(hints[name])[:2]
        spellings = [text for text in (info.default, *(info.param_decls or ())) if str(text).startswith("-")]
        is_argument = type(info).__name__ == "ArgumentInfo"
        yield {
            "spelling": [name] if is_argument else spellings or [f"--{name.replace('_', '-')}"],
            "argument": is_argument,
            "takes": takes(annotation),
            "default": "<required>" if item.default is item.empty else getattr(item.default, "value", item.default),
        }


def takes(annotation: Any) -> Any:
    """The type by name, the values of a choice, or a list of one of these."""
    options = [option for option in typing.get_args(annotation) if option is not type(None)]
    if typing.get_origin(annotation) is list:
        return [takes(options[0])]
    if options:
        return takes(options[0])
    return [item.value for item in annotation] if issubclass(annotation, enum.Enum) else annotation.__name__


def test_commands_arguments_and_options() -> None:
    assert callable(main)  # the console script, and `python -m lpkit_cli.app`
    root = app.registered_callback
    assert root is not None
    commands = {str(command.name): command.callback for command in app.registered_commands}
    for group in app.registered_groups:
        assert group.typer_instance is not None
        for command in group.typer_instance.registered_commands:
            commands[f"{group.name} {command.name}"] = command.callback
    found = {name: list(parameters(callback)) for name, callback in {"lpkit": root.callback, **commands}.items()}
    hold("command_line", json.loads(json.dumps(found, default=str)))


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("no-such-command",),
        ("--no-such-option",),
        *(
            (name, "--no-such-option")
            for name in ("bench", "check", "doctor", "explain", "list", "new", "record", "update")
        ),
        ("check",),
        ("check", "x:Y", "--select", "LP999"),
        ("check", "x:Y", "--ignore", "202"),
        ("check", "x:Y", "--case", "{"),
        ("check", "x:Y", "--host", "v3"),
        ("check", "x:Y", "--engine", "vllm", "--select", "LP202"),
        ("explain", "LP999"),
        ("replay", "no-such-file.json"),
        ("rules", "check", "no-such-file.toml"),
        ("rules", "explain", '[{"rule": "min_q"}]'),
        ("bench", "--batch", "0"),
        ("doctor", "--vllm", "latest"),
        ("new", "1 bad name"),
        ("new", "my-proc", "--style", "wrap"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_understood_is_exit_code_2(arguments: tuple[str, ...], tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2, done.output
    assert list(tmp_path.iterdir()) == []


def test_the_codes_of_the_checks() -> None:
    # Written by hand: a code, once published, keeps its name, its tier and its engine, and is never used again.
    held = (FOLDER / "codes.txt").read_text(encoding="utf-8").splitlines()
    now = [f"{check.code} {check.tier} {check.engine} {check.name}" for check in all_checks(None)]
    assert not {*held} - {*now}, "published in golden/codes.txt, and gone or changed"
    assert held == now, f"add to golden/codes.txt, in order: {[line for line in now if line not in held]}"
