"""``lpkit new`` finds out, asks and records facts for publishing a project, and the source of the project's lpkit."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command import python
from lpkit_cli.scaffold import git, origin
from lpkit_cli.scaffold.origin import Origin
from lpkit_conformance.errors import UsageError
from lpkit_conformance.testing import compute_check

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

KNOWN = {"author": 'Ada "A" Lovelace', "email": "ada@example.org", "repository": "https://github.com/ada/my-proc"}


def options(answers: dict[str, str]) -> list[str]:
    return [word for key, value in answers.items() for word in (f"--{key.replace('_', '-')}", value)]


def project_table(folder: Path) -> dict:
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def record(folder: Path) -> dict:
    return json.loads((folder / ".lpkit-template.json").read_text(encoding="utf-8"))["answers"]


@pytest.fixture
def configured(new, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """git has a user."""
    file = tmp_path / "gitconfig"
    file.write_text("[user]\n\tname = Ada\n\temail = ada@example.org\n", encoding="utf-8")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(file))


class TestWhatIsRecorded:
    def test_options_are_written_into_the_project(self, new, tmp_path: Path) -> None:
        new("my-proc", *options({**KNOWN, "description": r"Ends \ replies"}))
        table = project_table(tmp_path / "my-proc")
        assert table["description"] == r"Ends \ replies"
        assert table["authors"] == [{"name": KNOWN["author"], "email": KNOWN["email"]}]
        assert table["urls"]["Issues"] == "https://github.com/ada/my-proc/issues"
        assert record(tmp_path / "my-proc").items() >= KNOWN.items()
        readme = (tmp_path / "my-proc/README.md").read_text(encoding="utf-8")
        assert "https://github.com/ada/my-proc/actions/workflows/ci.yml/badge.svg" in readme

    def test_what_nobody_knows_is_left_out(self, new, tmp_path: Path) -> None:
        new("my-proc")
        assert not {"authors", "urls"} & project_table(tmp_path / "my-proc").keys()
        assert "badge" not in (tmp_path / "my-proc/README.md").read_text(encoding="utf-8")

    def test_git_knows_the_author_and_the_repository(self, new, configured, tmp_path: Path) -> None:
        subprocess.run(["git", "init", "-q", "clone"], cwd=tmp_path, check=True)
        remote = ["git", "remote", "add", "origin", "git@github.com:ada/plugins.git"]
        subprocess.run(remote, cwd=tmp_path / "clone", check=True)
        new("my-proc", "-o", "clone")
        table = project_table(tmp_path / "clone/my-proc")
        assert table["authors"] == [{"name": "Ada", "email": "ada@example.org"}]
        assert table["urls"]["Repository"] == "https://github.com/ada/plugins"

    @pytest.mark.parametrize(
        ("key", "value"),
        [("email", "nobody"), ("repository", "git@host:x"), ("author", "{{ 7 }}"), ("description", "two\nlines")],
    )
    def test_what_would_break_the_project_is_refused(self, new, tmp_path: Path, key: str, value: str) -> None:
        assert "Nothing was written" in new("my-proc", *options({key: value}), code=2).stderr
        assert not (tmp_path / "my-proc").exists()


class TestQuestions:
    ANSWERS = "https://example.org/lpkit.whl\nEnds replies\n\nada@example.org\n\n"

    def test_a_terminal_is_asked_once_with_what_git_knows(
        self, new, configured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("lpkit_cli.console.on_a_terminal", lambda: True)
        new("my-proc", input=self.ANSWERS)
        found = record(tmp_path / "my-proc")
        assert found["lpkit_from"] == "https://example.org/lpkit.whl"
        assert (found["description"], found["author"], found["email"]) == ("Ends replies", "Ada", "ada@example.org")

    def test_what_an_option_says_is_not_asked(self, new, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("lpkit_cli.console.on_a_terminal", lambda: True)
        given = {**KNOWN, "description": "Ends replies", "lpkit_from": "index"}
        assert "Created" in new("my-proc", *options(given)).stdout.splitlines()[0]

    @pytest.mark.parametrize(("terminal", "more"), [(False, []), (True, ["--no-input"])])
    def test_nobody_is_asked(self, new, monkeypatch: pytest.MonkeyPatch, terminal: bool, more: list[str]) -> None:
        monkeypatch.setattr("lpkit_cli.console.on_a_terminal", lambda: terminal)
        assert "Created" in new("my-proc", *more, input=self.ANSWERS).stdout.splitlines()[0]


class TestOrigin:
    def lines(self, folder: Path) -> list[str]:
        text = (folder / "requirements-lpkit.txt").read_text(encoding="utf-8")
        return [line for line in text.splitlines() if not line.startswith("#")]

    def test_the_index_needs_no_line(self, new, tmp_path: Path) -> None:
        new("my-proc", "--lpkit-from", "index")
        assert self.lines(tmp_path / "my-proc") == []

    def test_a_reference_is_one_for_pip(self, new, tmp_path: Path) -> None:
        new("my-proc", "--lpkit-from", "git+https://example.org/lpkit@0123abc")
        assert self.lines(tmp_path / "my-proc") == ["vllm-lpkit @ git+https://example.org/lpkit@0123abc"]

    @pytest.mark.parametrize("where", ["wheels", "wheels/vllm_lpkit-0.3.0-py3-none-any.whl"])
    def test_a_wheel_travels_with_the_project(self, new, tmp_path: Path, where: str) -> None:
        wheel = tmp_path / "wheels" / "vllm_lpkit-0.3.0-py3-none-any.whl"
        wheel.parent.mkdir()
        wheel.write_bytes(b"a wheel")
        assert "wheelhouse/vllm_lpkit-0.3.0" in new("my-proc", "--lpkit-from", where).stdout
        assert self.lines(tmp_path / "my-proc") == ["--find-links wheelhouse", "vllm-lpkit"]
        assert (tmp_path / "my-proc" / "wheelhouse" / wheel.name).read_bytes() == b"a wheel"
        assert record(tmp_path / "my-proc")["lpkit_from"] == "wheelhouse"

    @pytest.mark.parametrize("where", ["nowhere", ".", "ftp://x/y"])
    def test_where_there_is_no_lpkit_nothing_is_written(self, new, tmp_path: Path, where: str) -> None:
        assert "--lpkit-from" in new("my-proc", "--lpkit-from", where, code=2).stderr
        assert not (tmp_path / "my-proc").exists()

    @pytest.mark.parametrize(
        ("direct", "expected"),
        [
            (None, "index"),
            ("not JSON", "index"),
            (
                {"url": "https://x.org/l.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
                "git+https://x.org/l.git@abc",
            ),
            ({"url": "https://x.org/l.whl", "archive_info": {}}, "https://x.org/l.whl"),
            ({"url": "file:///some/folder", "dir_info": {}}, "wheelhouse"),
            ({"url": "file:///some/vllm_lpkit.whl", "archive_info": {}}, "wheelhouse"),
        ],
    )
    def test_by_default_it_is_where_this_lpkit_came_from(
        self, monkeypatch: pytest.MonkeyPatch, direct: object, expected: str
    ) -> None:
        self.direct(monkeypatch, direct)
        assert origin.own() == Origin(expected)

    def test_a_checkout_without_a_remote_gives_its_wheel(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.direct(monkeypatch, {"url": tmp_path.as_uri(), "dir_info": {"editable": True}})
        assert origin.own() == Origin("wheelhouse", tmp_path)

    def test_a_commit_that_its_remote_has_is_referred_to(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        def run(*arguments: str) -> str:
            who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
            done = subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True)
            return done.stdout.strip()

        self.direct(monkeypatch, {"url": tmp_path.as_uri(), "dir_info": {"editable": True}})
        run("init", "-q")
        run("commit", "-q", "--allow-empty", "-m", "one")
        run("remote", "add", "origin", "https://token@example.org/lpkit.git")
        assert origin.own() == Origin("wheelhouse", tmp_path)
        run("update-ref", "refs/remotes/origin/main", "HEAD")
        assert origin.own() == Origin(f"git+https://example.org/lpkit@{run('rev-parse', 'HEAD')}")

    def direct(self, monkeypatch: pytest.MonkeyPatch, value: object) -> None:
        class Dist:
            def read_text(self, name: str) -> str | None:
                return value if value is None or isinstance(value, str) else json.dumps(value)

        monkeypatch.setattr("lpkit_conformance.discovery.metadata.find", lambda name: Dist())

    def test_a_checkout_that_does_not_build_says_so(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="no wheel can be built"):
            Origin("wheelhouse", tmp_path).wheel(tmp_path)


class TestRepository:
    def test_outside_of_one_a_first_commit_has_every_file(self, new, configured, tmp_path: Path) -> None:
        new("my-proc", git=True)
        assert git.changed(tmp_path / "my-proc") == []
        assert git.line("log", "--format=%an %s", folder=tmp_path / "my-proc") == "Ada Add what lpkit new made"
        assert git.line("branch", "--show-current", folder=tmp_path / "my-proc") == "main"

    def test_without_an_author_nothing_is_committed(self, new, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("EMAIL", "")
        monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
        monkeypatch.setenv("GIT_CONFIG_KEY_0", "user.useConfigOnly")
        monkeypatch.setenv("GIT_CONFIG_VALUE_0", "true")
        assert "user.name" in new("my-proc", git=True).stdout
        assert "README.md" in (git.changed(tmp_path / "my-proc") or [])

    def test_in_a_hook_of_another_repository_it_is_still_its_own(
        self, new, configured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GIT_DIR", str(tmp_path / "other.git"))
        new("my-proc", git=True)
        assert (tmp_path / "my-proc/.git").is_dir()
        assert not (tmp_path / "other.git").exists()

    def test_inside_of_one_there_is_no_other(self, new, configured, tmp_path: Path) -> None:
        subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
        new("my-proc", git=True)
        assert not (tmp_path / "my-proc/.git").exists()

    def test_without_git_the_project_is_written_all_the_same(
        self, new, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        assert "git is missing" in new("my-proc", git=True).stdout
        assert (tmp_path / "my-proc/README.md").is_file()

    @pytest.mark.parametrize(
        ("remote", "page"),
        [
            ("git@github.com:ada/my-proc.git", "https://github.com/ada/my-proc"),
            ("https://user:secret@example.org/ada/x", "https://example.org/ada/x"),
            ("ssh://git@example.org:2222/ada/x.git", "https://example.org/ada/x"),
            ("/srv/git/x.git", ""),
            ("C:\\git\\x", ""),
            ("file:///srv/git/x", ""),
        ],
    )
    def test_the_page_of_a_remote_holds_no_secrets(self, remote: str, page: str) -> None:
        assert git.address(remote) == page


class TestEngines:
    def test_sglang_gets_an_entry_point_that_names_a_plugin(self, new, tmp_path: Path) -> None:
        new("both-engines", "--engines", "vllm,sglang")
        folder = tmp_path / "both-engines"
        points = project_table(folder)["entry-points"]
        assert points["sglang.srt.plugins"] == {"both-engines": "both_engines.for_sglang:register"}
        assert points["vllm.logits_processors"] == {"both-engines": "both_engines.processor:BothEngines"}
        assert record(folder)["engines"] == "vllm,sglang"
        code = "from both_engines.for_sglang import register; print(callable(register))"
        done = python("-c", code, cwd=tmp_path, path=(folder / "src",))
        assert done.stdout == "True\n", done.stderr

    def test_without_the_option_nothing_is_for_sglang(self, new, tmp_path: Path) -> None:
        new("my-proc")
        assert "sglang" not in (tmp_path / "my-proc/pyproject.toml").read_text(encoding="utf-8")
        assert not list((tmp_path / "my-proc").rglob("for_sglang.py"))

    def test_an_engine_that_lpkit_does_not_know_is_refused(self, new, tmp_path: Path) -> None:
        assert "'vllm', 'vllm,sglang'" in new("my-proc", "--engines", "sglang", code=2).stderr
        assert not (tmp_path / "my-proc").exists()


class TestBare:
    @pytest.mark.parametrize("style", ["processor", "request"])
    def test_it_has_no_example_rule(self, new, tmp_path: Path, style: str) -> None:
        new("my-proc", "--style", style, "--bare")
        folder = tmp_path / "my-proc"
        assert record(folder)["bare"] is True
        text = "".join(file.read_text(encoding="utf-8") for file in folder.rglob("*") if file.is_file())
        for word in ("wrap_up", "recent_"):
            assert word not in text

    @pytest.mark.broad
    def test_its_tests_say_what_to_write_and_pass_until_then(self, new, tmp_path: Path) -> None:
        new("my-proc", "--bare")
        new("my-req", "--bare", "--style", "request")
        projects = (tmp_path / "my-proc", tmp_path / "my-req")
        quiet = ("-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "--import-mode=importlib")
        tests = (str(project / "tests/test_behaviour.py") for project in projects)
        done = python(*quiet, *tests, cwd=tmp_path, path=tuple(project / "src" for project in projects))
        assert done.returncode == 0, done.stdout
        assert done.stdout.count("write the rule in processor.py") >= 2

    @pytest.mark.parametrize("style", ["processor", "request"])
    def test_the_rule_in_its_comment_works(self, new, tmp_path: Path, style: str) -> None:
        shown = new(f"bare-{style}", "--style", style, "--bare").stdout
        file = tmp_path / f"bare-{style}/src/bare_{style}/processor.py"
        assert f"Next: write the rule in {file.relative_to(tmp_path)}" in shown
        rule = re.sub(r"# (ids|logits)", r"\1", file.read_text(encoding="utf-8"))
        file.write_text(rule, encoding="utf-8")
        done = compute_check(
            "LP201", f"{file}:Bare{style.title()}", case={"extra_args": {f"bare_{style}_strength": 1.0}}
        )
        assert done.status == "passed", done

    def test_what_is_wrapped_has_its_rule(self, new) -> None:
        assert "exclude each other" in new("my-proc", "--bare", "--wrap", "json:loads", code=2).stderr
