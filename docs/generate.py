"""Writes the generated pages of the site, which git ignores: ``make site`` and the published build run it first.

``checks/`` comes from the checks' docstrings, ``plugins/`` from the READMEs of the reference plugins,
``reference/cli.md`` from the command's help, and ``evidence/vllm-releases.md`` from the table of facts.
"""

from __future__ import annotations

import enum
import inspect
import logging
import re
import shutil
import sys
import typing
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
for _folder in ("sdk", "conformance", "conformance/tools", "cli"):
    sys.path.insert(0, str(ROOT / _folder))

import typer  # noqa: E402
from lpkit_cli import app as command  # noqa: E402
from lpkit_conformance.checks import examples  # noqa: E402
from lpkit_conformance.checks.base import Rule  # noqa: E402
from lpkit_conformance.checks.catalogue import FAMILIES, all_checks, by_code, turning_off  # noqa: E402
from lpkit_conformance.errors import UsageError  # noqa: E402
from lpkit_conformance.report.drawing import svg_file  # noqa: E402
from lpkit_conformance.report.explain import notes, prevented  # noqa: E402
from lpkit_conformance.report.picture import picture  # noqa: E402
from lpkit_conformance.report.text import check_lines  # noqa: E402
from lpkit_conformance.settings.hosts import in_words  # noqa: E402
from lpkit_conformance.show.model import Toy  # noqa: E402
from lpkit_conformance.testing import compute_check, show  # noqa: E402
from vllm_canary import page as vllm_page  # noqa: E402

FACTS = "conformance/lpkit_conformance/vllm_api/facts.toml"

EXIT_CODES = re.compile(r"Exit codes?:? \d.*?\.(?: Notes do not count\.)?(?= |$)")
"""The exit codes in a command's help; the page links to the table of all of them instead."""

NOTICE = "<!-- Written by docs/generate.py (make site); edit {} instead. -->"


def pages(judged: bool = False) -> dict[str, str]:
    """Every generated page and picture, by its path below ``docs/``.

    Args:
        judged: with the reports of the checks' wrong examples and the pictures of the plugins, which takes a minute.
    """
    checks = all_checks(None)
    faults = {check.code: fault_of(check.code)[1] for check in checks if judged and examples.examples_of(check.code)}
    return {
        **{f"checks/{check.code}.md": check_page(check, judged) for check in checks},
        **{f"checks/{code}.svg": svg_file(batch, code) for code, batch in faults.items() if batch and batch["steps"]},
        "checks/index.md": check_index(checks),
        **plugin_pages(judged),
        "reference/cli.md": cli_page(),
        "evidence/vllm-releases.md": f"{NOTICE.format(FACTS)}\n\n{vllm_page.releases()}",
    }


# -- checks ------------------------------------------------------------------------------------------------------


def check_page(check: type[Rule], judged: bool = False) -> str:
    """The page of one check; ``judged``: with the report of its wrong example."""
    parts = check.sections()
    home = f"conformance/{check.__module__.replace('.', '/')}.py"
    requires = ", ".join(f"[{code}]({code}.md)" for code in check.requires) or "nothing"
    lines = [
        NOTICE.format(f"the docstring in {home}"),
        "",
        f"# {check.code} {check.name}",
        "",
        f"{parts['title']}.",
        "",
        "| runs on | tier | requires |",
        "|---|---|---|",
        f"| {runs_on(check)} | {check.tier} | {requires} |",
        "",
    ]
    for title, key in (("Rule", "rule"), ("Why", "why"), ("Fix", "fix")):
        if parts[key]:
            lines += [f"## {title}", "", sentence(parts[key]), ""]
    for reason in prevented(check):
        lines += [reason, ""]
    lines += example_section(check.code, judged)
    lines += ["## Turning it off", "", turning_off(check), ""]
    for note in notes(check):
        lines += [note, ""]
    lines += ["[All checks](index.md)", ""]
    return "\n".join(lines)


@cache
def fault_of(code: str) -> tuple[str, dict[str, Any] | None]:
    """The report of ``lpkit check`` on the wrong form of a check's first example, and the batch to draw."""
    example = examples.examples_of(code)[0]
    with TemporaryDirectory() as folder:
        file = Path(folder, f"{code.lower()}.py")
        file.write_text(example.wrong, encoding="utf-8")
        (name,) = re.findall(r"^class (\w+)", example.wrong, re.M)
        for host in by_code()[code].hosts or ("",):
            with suppress(UsageError):  # the example has another interface
                result = compute_check(code, f"{file}:{name}", host=host, case=examples.CASES[example.module])
                if result.finding:
                    break
        said = "\n".join(check_lines(result)).replace(f"{file.parent}/", "")
    assert result.finding, f"{code}: its example is {result.status}"
    return said, result.finding.timeline


def example_section(code: str, judged: bool) -> Iterator[str]:
    """The check's examples, as diffs from wrong to right, and the report of the first one's wrong form, if judged."""
    for number, example in enumerate(examples.examples_of(code)):
        if not number:
            yield from ("## Example", "")
        yield from (f"From wrong to right, on {example.bases}:", "", "```diff", example.diff, "```", "")
        if judged and not number:
            said, timeline = fault_of(code)
            yield from ("`lpkit check` reports the wrong form:", "", "```console", said, "```", "")
            if timeline and timeline["steps"]:
                yield from (f"![The batch in which it goes wrong, step by step]({code}.svg)", "")


def check_index(checks: list[type[Rule]]) -> str:
    """The list of all checks, by family."""
    lines = [
        NOTICE.format("the checks' docstrings"),
        "",
        "# Checks",
        "",
        f"{len(checks)} checks. Codes are never renumbered or used again. A check of the advice tier never fails a "
        "plugin. Some run on each runner whose interface the class has, others once. How they work together: "
        "[conformance](../explanation/conformance.md).",
        "",
    ]
    for family, title in FAMILIES.items():
        members = [check for check in checks if check.code.startswith(family)]
        if not members:
            continue
        lines += [f"## {family} {title}", "", f":::{{dropdown}} {len(members)} checks"]
        lines += ["| code | name | rule | runs on | tier |", "|---|---|---|---|---|"]
        for check in members:
            row = (f"[{check.code}]({check.code}.md)", check.name, check.title(), runs_on(check), check.tier)
            lines.append(f"| {' | '.join(row)} |")
        lines += [":::", ""]
    return "\n".join(lines)


def runs_on(check: type[Rule]) -> str:
    return in_words(check.hosts) or "once"


def sentence(text: str) -> str:
    return text if text.startswith("vLLM") else text[:1].upper() + text[1:]


# -- reference plugins -------------------------------------------------------------------------------------------


def plugin_pages(drawn: bool) -> dict[str, str]:
    """The README of each reference plugin, with a picture of its rule if drawn, and an index of them."""
    pages: dict[str, str] = {}
    lines = [
        NOTICE.format("docs/generate.py"),
        "",
        "# Reference plugins",
        "",
        "| package | what it does |",
        "|---|---|",
    ]
    for folder in sorted((ROOT / "reference_plugins").iterdir()):
        name, project = folder.name, (folder / "pyproject.toml").read_text(encoding="utf-8")
        (said,) = re.findall(r'^description = "(.*)"$', project, re.M)
        lines.append(f"| [{name}]({name}.md) | {said} |")
        text = (folder / "README.md").read_text(encoding="utf-8")
        if drawn:
            pages[f"plugins/{name}.svg"] = drawing_of(folder)
            picture = f"![Likely tokens before and after the rule, at one token of a reply]({name}.svg)"
            text = text.replace("\n## ", f"\n{picture}\n\n## ", 1)
        pages[f"plugins/{name}.md"] = f"{NOTICE.format(f'reference_plugins/{name}/README.md')}\n\n{text}"
    return {"plugins/index.md": "\n".join([*lines, ""]), **pages}


def drawing_of(plugin: Path) -> str:
    """The picture of a plugin's rule, on the first case of its project or a request that switches it on in words."""
    start, end = map(Toy().encode, ("<think>", "</think>"))
    requests: dict[str, dict[str, Any]] = {
        "lpkit-loop-breaker": {"case": {"temperature": 0, "extra_args": {"loop_times": 2, "loop_tokens": 4}}},
        "lpkit-thinking-budget": {
            "prompt": "User: What is two and three?\nAssistant: <think>",
            "case": {"extra_args": {"think_budget": 6, "think_start": start, "think_end": end}},
        },
    }
    sys.path.insert(0, str(plugin / "src"))
    shown = show(root=plugin, steps=36, **requests.get(plugin.name, {}))
    assert shown.receipts[0].acted, f"{plugin.name} never acts on its picture: {shown.receipts[0].note}"
    return picture(shown)


# -- the command line --------------------------------------------------------------------------------------------


def cli_page() -> str:
    """Every command with its arguments and options."""
    root = command.app.registered_callback
    assert root is not None
    lines = [
        NOTICE.format("the commands in cli/lpkit_cli/"),
        "",
        "# Commands",
        "",
        *paragraphs(root.callback),
        "```",
        "lpkit [--version] [--help] COMMAND ...",
        "```",
        "",
    ]
    for item in command.app.registered_commands:
        lines += [*command_section(str(item.name), item.callback)]
    for group in command.app.registered_groups:
        assert group.typer_instance is not None
        for item in group.typer_instance.registered_commands:
            lines += [*command_section(f"{group.name} {item.name}", item.callback)]
    return "\n".join(lines)


def command_section(name: str, callback: Any) -> Iterator[str]:
    yield f"## lpkit {name}"
    yield ""
    yield from paragraphs(callback)
    rows = list(parameters(callback))
    usage = [row[0] for row in rows if not row[0].startswith("-")]
    yield "```"
    yield " ".join(("lpkit", name, *usage, "[OPTIONS]" if len(rows) > len(usage) else "")).rstrip()
    yield "```"
    yield ""
    if rows:
        yield "| argument or option | meaning | default |"
        yield "|---|---|---|"
        yield from (f"| `{spelling}` | {text} | {default} |" for spelling, text, default in rows)
        yield ""


def parameters(callback: Any) -> Iterator[tuple[str, str, str]]:
    """(spelling, help, default) of each argument and option, in the order of the signature."""
    hints = typing.get_type_hints(callback, include_extras=True)
    for name, parameter in inspect.signature(callback).parameters.items():
        if hints[name] is typer.Context:
            continue
        kind, info = typing.get_args(hints[name])[:2]
        text = str(info.help or "").replace("|", "\\|")
        default = parameter.default
        if type(info).__name__ == "ArgumentInfo":
            yield info.metavar or name.upper(), text, "" if default is inspect.Parameter.empty else "none"
            continue
        # Inside Annotated, typer keeps the first spelling where a default would be.
        spellings = [item for item in (info.default, *(info.param_decls or ())) if str(item).startswith("-")]
        spelling = ", ".join(spellings or [f"--{name.replace('_', '-')}"])
        value = info.metavar or value_name(kind)
        yield f"{spelling} {value}".strip(), text, shown(default)


def value_name(kind: Any) -> str:
    """The value that an option of this type takes: its choices, or the name of its type; nothing for a flag."""
    options = [option for option in typing.get_args(kind) if option is not type(None)]
    kind = options[0] if options else kind
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return "\\|".join(item.value for item in kind)
    return {bool: "", int: "INT", float: "NUMBER", Path: "PATH"}.get(kind, "TEXT")


def shown(default: Any) -> str:
    if default is None or default is False:
        return ""
    if isinstance(default, enum.Enum):
        default = default.value
    return f"`{default}`"


def paragraphs(callback: Any) -> Iterator[str]:
    for part in (inspect.getdoc(callback) or "").split("\n\n"):
        text = " ".join(part.split())
        yield EXIT_CODES.sub("Its [exit codes](exit-codes.md).", text)
        yield ""


# -- writing -----------------------------------------------------------------------------------------------------


def main() -> None:
    """Write every page, and remove those of checks that no longer exist."""
    logging.getLogger().addHandler(logging.NullHandler())  # wrong examples raise, and lpkit logs it
    for folder in ("checks", "plugins"):
        shutil.rmtree(DOCS / folder, ignore_errors=True)
    for name, text in pages(judged=True).items():
        path = DOCS / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
