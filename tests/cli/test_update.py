"""``lpkit update``: projects of an older template are brought to today's, in every style; nothing of theirs is lost.

The older template is made here, from today's.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lpkit_cli.app import app
from lpkit_cli.scaffold import answers, baking
from lpkit_cli.scaffold.naming import names_for
from lpkit_cli.scaffold.wrapping import context
from lpkit_conformance.discovery.bridgeable import Bridgeable
from typer.testing import CliRunner, Result

NAMES = names_for("my-proc")
WRAPPED = {
    "wrap": Bridgeable("old_plugin", "OldTarget", "class", ("old_target",), ("old-plugin",)),
    "wrap-callable": Bridgeable("old_plugin", "punish", "callable", (), ("old-plugin",)),
    "wrap-factory": Bridgeable("old_plugin", "make.Punisher", "factory", ("cost", "after"), ()),
}
STYLES = ("processor", "request", *WRAPPED)
OLD = "0.0.9"
TODAY = baking.template_versions()[-1]
MARKS = re.compile(rb"^(<<<<<<<|\|\|\|\|\|\|\||=======|>>>>>>>)", re.M)


def given(style: str) -> dict:
    """The variables of a project of this style, as ``lpkit new`` gives them."""
    names = {"project_name": NAMES.project, "package_name": NAMES.package, "class_name": NAMES.class_name}
    if style not in WRAPPED:
        return {**names, "style": style}
    return {**names, "style": "wrap", **context(WRAPPED[style], NAMES, [])}


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    named = {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
    return {name: content for name, content in named.items() if not name.startswith((".git/", ".lpkit/"))}


def make_older(template: Path) -> None:
    """Turn a copy of today's template into a template with fewer files and other lines."""
    (inside,) = template.glob("{{*")
    shutil.rmtree(inside / "docs")
    for name in ("requirements-lpkit.txt", "CHANGELOG.md"):
        (inside / name).unlink()
    edit(template / "cookiecutter.json", TODAY, OLD)
    edit(inside / "README.md", "pip install -r requirements-lpkit.txt .", "pip install .")
    cut(inside / "README.md", "\n## Release\n", "")
    cut(inside / "pyproject.toml", "\n# For `pip install --group`", "\n# vLLM loads every installed")
    edit(inside / ".github/workflows/ci.yml", "-r requirements-lpkit.txt . --group dev", ". pytest")
    edit(inside / ".github/workflows/ci.yml", "run: python -m pytest", "run: python -m pytest -q")
    for example in template.glob("templates/*/*.py"):
        example.write_text(example.read_text(encoding="utf-8") + "\n# An older example.\n", encoding="utf-8")


def cut(file: Path, start: str, end: str) -> None:
    """Remove what begins with ``start``, up to ``end``; "" is the end of the file."""
    before, found, rest = file.read_text(encoding="utf-8").partition(start)
    assert found and end in rest
    file.write_text(before + (rest[rest.index(end) :] if end else ""), encoding="utf-8")


@pytest.fixture(scope="module", autouse=True)
def templates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Today's template, with an older template in it."""
    folder = tmp_path_factory.mktemp("templates") / "template"
    shutil.copytree(baking.bundled_template(), folder, ignore=shutil.ignore_patterns(baking.PAST))
    older = shutil.copytree(folder, folder.with_name("older"))
    make_older(older)
    shutil.move(older, folder / baking.PAST / OLD)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(baking, "bundled_template", lambda: folder)
        yield


@pytest.fixture
def style(request: pytest.FixtureRequest) -> str:
    return str(getattr(request, "param", "processor"))


@pytest.fixture(scope="module")
def baked(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """``baked(style, version)``: a project, made once."""
    made: dict[tuple[str, str], Path] = {}

    def bake(style: str, version: str) -> Path:
        if (style, version) not in made:
            made[style, version] = baking.render(given(style), tmp_path_factory.mktemp(style), version)
        return made[style, version]

    return bake


@pytest.fixture
def old(baked, style: str, tmp_path: Path) -> Path:
    """A copy of a project of the older template."""
    return Path(shutil.copytree(baked(style, OLD), tmp_path / "my-proc"))


def update(project: Path, *options: str, code: int = 0) -> Result:
    done = CliRunner().invoke(app, ["update", str(project), *options])
    assert done.exit_code == code, done.output
    assert "Traceback" not in done.output
    return done


def edit(file: Path, before: str, after: str) -> None:
    text = file.read_bytes()
    assert before.encode() in text
    file.write_bytes(text.replace(before.encode(), after.encode()))


class TestFromAnOlderTemplate:
    @pytest.mark.parametrize("style", STYLES, indirect=True)
    def test_an_untouched_project_becomes_what_a_new_one_is(self, old: Path, style: str, baked) -> None:
        assert contents(old) != contents(baked(style, ""))
        update(old)
        assert contents(old) == contents(baked(style, ""))
        assert answers.read(old).answers.items() >= given(style).items()

    def test_a_second_time_there_is_nothing_to_do(self, old: Path) -> None:
        update(old)
        before = contents(old)
        assert "Up to date" in update(old).stdout
        assert contents(old) == before

    def test_a_second_engine_is_kept(self, tmp_path: Path) -> None:
        project = baking.render({**given("processor"), "engines": "vllm,sglang"}, tmp_path)
        before = contents(project)
        assert "src/my_proc/for_sglang.py" in before
        assert "Up to date" in update(project).stdout
        assert contents(project) == before

    def test_edits_elsewhere_stay(self, old: Path, style: str, baked) -> None:
        edit(old / "pyproject.toml", 'version = "0.1.0"', 'version = "1.2.3"')
        edit(old / "README.md", "Offline:\n", "Offline, my own advice:\n")
        (old / "src/my_proc/mine.py").write_text("MINE = 1\n", encoding="utf-8")
        update(old)
        today = contents(baked(style, ""))
        today["pyproject.toml"] = today["pyproject.toml"].replace(b'version = "0.1.0"', b'version = "1.2.3"', 1)
        today["README.md"] = today["README.md"].replace(b"Offline:\n", b"Offline, my own advice:\n")
        assert contents(old) == today | {"src/my_proc/mine.py": b"MINE = 1\n"}

    def test_both_versions_of_the_same_lines_are_marked(self, old: Path) -> None:
        edit(old / ".github/workflows/ci.yml", "run: python -m pytest", "run: python -m pytest --mine")
        said = update(old, code=1).stdout
        assert re.search(r"CONFLICT +\.github/workflows/ci\.yml", said)
        assert "1 file has conflicts" in said
        text = (old / ".github/workflows/ci.yml").read_bytes()
        assert len(MARKS.findall(text)) >= 4
        assert b"run: python -m pytest --mine" in text
        assert b"requirements-lpkit.txt" in text
        assert not MARKS.search((old / "README.md").read_bytes())

    @pytest.mark.parametrize("style", ["processor", "wrap"], indirect=True)
    def test_another_rule_stays_as_the_author_wrote_it(self, old: Path, style: str) -> None:
        """The example rule's later wording is nothing to resolve."""
        own = {
            "src/my_proc/processor.py": b"MyProc = None\n",
            "tests/test_behaviour.py": b"def test_mine() -> None: ...\n",
        }
        for name, content in own.items():
            (old / name).write_bytes(content)
        readme = (old / "README.md").read_bytes()
        (old / "README.md").write_bytes(b"# Mine\n\nMy rule.\n\n## Install" + readme.partition(b"## Install")[2])
        if style.startswith("wrap"):
            update(old, code=1)  # there it is not an example
            return
        update(old)
        found = contents(old)
        assert {name: found[name] for name in own} == own
        assert found["README.md"].startswith(b"# Mine\n\nMy rule.\n\n## Install\n")
        assert b"## Release" in found["README.md"]


@pytest.fixture
def project(old: Path) -> Path:
    return old


class TestNothingIsLost:
    def test_outside_of_git_what_was_is_copied(self, project: Path) -> None:
        before = contents(project)
        assert "before-update" in update(project).stdout
        (copies,) = (project / ".lpkit/before-update").iterdir()
        copied, after = contents(copies), contents(project)
        assert copied == {name: content for name, content in before.items() if after.get(name) != content}
        assert "pyproject.toml" in copied

    def test_files_that_the_author_deleted_stay_deleted(self, project: Path) -> None:
        (project / ".github/workflows/ci.yml").unlink()
        assert "you deleted it" in update(project).stdout
        assert not (project / ".github/workflows/ci.yml").exists()

    def test_files_that_the_author_has_already_stay(self, project: Path) -> None:
        (project / "CHANGELOG.md").write_text("Mine.\n", encoding="utf-8")
        assert "you have your own file" in update(project).stdout
        assert (project / "CHANGELOG.md").read_text(encoding="utf-8") == "Mine.\n"

    def test_what_the_template_dropped_stays_if_it_was_edited(self, project: Path, monkeypatch) -> None:
        without = baking.render

        def render(given: dict, output: Path, version: str = "") -> Path:
            made = without(given, output, version)
            if not version:
                (made / ".gitignore").unlink()
                (made / "LICENSE").unlink()
            return made

        monkeypatch.setattr(baking, "render", render)
        (project / "LICENSE").write_text("Mine.\n", encoding="utf-8")
        said = update(project).stdout
        assert re.search(r"removed +\.gitignore", said)
        assert re.search(r"kept +LICENSE: you changed it", said)
        assert (project / "LICENSE").is_file() and not (project / ".gitignore").exists()

    def test_links_and_folders_in_the_way_are_left_alone(self, project: Path, tmp_path: Path) -> None:
        other = tmp_path / "README.md"
        (project / "README.md").rename(other)
        (project / "README.md").symlink_to(other)
        (project / "docs").touch()
        (project / "CHANGELOG.md").mkdir()
        before = other.read_bytes()
        said = update(project).stdout
        assert "README.md: a link leads there" in said
        assert "docs/index.md: docs is not a folder" in said
        assert "CHANGELOG.md: it is not a file" in said
        assert other.read_bytes() == before

    def test_line_ends_of_windows_stay(self, project: Path) -> None:
        for file in project.rglob("*"):
            if file.is_file():
                file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
        edit(project / "pyproject.toml", 'version = "0.1.0"', 'version = "1.2.3"')
        update(project)
        text = (project / "pyproject.toml").read_bytes()
        assert b'version = "1.2.3"\r\n' in text and b"[dependency-groups]\r\n" in text
        assert text.count(b"\n") == text.count(b"\r\n")

    def test_a_dry_run_shows_the_changes_and_writes_nothing(self, project: Path) -> None:
        edit(project / ".github/workflows/ci.yml", "run: python -m pytest", "run: python -m pytest --mine")
        before = contents(project)
        said = update(project, "--dry-run", code=1).stdout
        assert contents(project) == before
        assert not (project / ".lpkit").exists()
        assert "+++ b/requirements-lpkit.txt" in said
        assert "+[dependency-groups]" in said
        assert f"Would update from template {OLD}" in said


class TestInARepository:
    @pytest.fixture
    def committed(self, project: Path) -> Path:
        self.git(project, "init", "-q")
        self.git(project, "add", "-A")
        self.git(project, "commit", "-q", "-m", "one")
        return project

    def git(self, folder: Path, *arguments: str) -> None:
        who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
        subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)

    def test_a_clean_work_tree_needs_no_copies(self, committed: Path) -> None:
        update(committed)
        assert not (committed / ".lpkit").exists()

    def test_a_dirty_one_is_refused_unless_forced(self, committed: Path) -> None:
        edit(committed / "pyproject.toml", 'version = "0.1.0"', 'version = "1.2.3"')
        before = contents(committed)
        assert "pyproject.toml" in update(committed, code=2).stderr
        assert contents(committed) == before
        update(committed, "--allow-dirty")
        (copies,) = (committed / ".lpkit/before-update").iterdir()
        assert contents(copies) == {"pyproject.toml": before["pyproject.toml"]}

    def test_what_git_ignores_is_copied(self, committed: Path) -> None:
        self.git(committed, "rm", "-q", "--cached", "README.md")
        edit(committed / ".gitignore", "/dist/", "/dist/\nREADME.md")
        self.git(committed, "commit", "-q", "-am", "two")
        before = contents(committed)
        update(committed)
        (copies,) = (committed / ".lpkit/before-update").iterdir()
        assert contents(copies) == {"README.md": before["README.md"]}


class TestWhatCannotBeUpdated:
    def test_a_folder_that_lpkit_new_did_not_make(self, tmp_path: Path) -> None:
        assert "lpkit new" in update(tmp_path, code=2).stderr

    @pytest.mark.parametrize("text", ["", "[]", '{"template_version": "0.1.0", "answers": {"style": "wrap"}}'])
    def test_a_damaged_record(self, project: Path, text: str) -> None:
        (project / answers.RECORD).write_text(text, encoding="utf-8")
        assert "restore it" in update(project, code=2).stderr

    @pytest.mark.parametrize(
        ("version", "said"), [("99.0.0", "install the newer lpkit"), ("0.0.7", "no template 0.0.7")]
    )
    def test_a_template_that_this_lpkit_does_not_know(self, project: Path, version: str, said: str) -> None:
        edit(project / answers.RECORD, OLD, version)
        before = contents(project)
        assert said in update(project, code=2).stderr
        assert contents(project) == before

    def test_without_git_nothing_is_written(self, project: Path, tmp_path: Path, monkeypatch) -> None:
        edit(project / "README.md", "## Serve\n", "## Serve\n\nMy own advice.\n")
        monkeypatch.setenv("PATH", str(tmp_path))
        before = contents(project)
        assert "install git" in update(project, code=2).stderr
        assert contents(project) == before


def test_the_templates_are_ordered_and_each_names_itself() -> None:
    versions = baking.template_versions()
    assert versions == sorted(set(versions), key=baking.ordered)
    for version in versions:
        text = (baking.template_directory(version) / "cookiecutter.json").read_text(encoding="utf-8")
        assert json.loads(text)["_template_version"] == version
