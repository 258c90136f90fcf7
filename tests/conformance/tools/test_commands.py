"""Output and failures of commands that the tools run."""

from __future__ import annotations

import sys
from pathlib import Path

import commands
import pytest

SAYS = "import sys; print('told'); print('why', file=sys.stderr); sys.exit({})"


def python(code: int) -> list[str]:
    return [sys.executable, "-c", SAYS.format(code)]


def test_what_it_printed_comes_back() -> None:
    assert commands.output(python(0)) == "told\n"
    assert commands.output(python(1), code=1) == "told\n"


@pytest.mark.parametrize(("ended", "expected"), [(2, 0), (0, 1)])
def test_another_exit_code_is_reported_with_the_command_and_what_it_printed(ended: int, expected: int) -> None:
    with pytest.raises(commands.CommandFailed) as caught:
        commands.output(python(ended), code=expected)
    first, *printed = str(caught.value).splitlines()
    assert first.startswith(sys.executable)
    assert first.endswith(f"ended with {ended}:")
    assert printed == ["told", "why"]


def test_of_long_output_the_end_is_reported() -> None:
    with pytest.raises(commands.CommandFailed) as caught:
        commands.output([sys.executable, "-c", f"print('a' * {commands.SHOWN}); exit('the reason')"])
    assert str(caught.value).endswith("a\nthe reason")
    assert str(caught.value).partition("\n")[2].count("a") < commands.SHOWN


def test_another_environment_inherits_nothing_of_this_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("PYTHONPATH", "VIRTUAL_ENV", "LPKIT_WATCH", "KEPT"):
        monkeypatch.setenv(name, str(tmp_path))
    assert {"KEPT"} == {name for name, value in commands.variables().items() if value == str(tmp_path)}
