"""``[tool.lpkit]``: valid settings, and the messages about mistakes."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from lpkit_conformance.errors import ProjectError
from lpkit_conformance.settings import project as projects
from lpkit_conformance.settings.project import ExpectedFailure, Project

HEAD = """
[project.entry-points."vllm.logits_processors"]
mine = "my_pkg.processor:Mine"
extra = "my_pkg.processor:Extra [cuda]"
"""


def find(folder: Path, text: str) -> Project:
    (folder / "pyproject.toml").write_text(text, encoding="latin-1")
    found = projects.find(folder)
    assert found is not None
    return found


def test_a_folder_without_pyproject_is_no_project(tmp_path) -> None:
    assert projects.find(tmp_path) is None


def test_a_project_without_settings_has_defaults(tmp_path) -> None:
    found = find(tmp_path, HEAD)
    assert found.entry_points == {"mine": "my_pkg.processor:Mine", "extra": "my_pkg.processor:Extra"}
    assert found == Project(tmp_path, found.entry_points)


def test_every_setting_is_read(tmp_path) -> None:
    found = find(
        tmp_path,
        HEAD
        + """
[tool.lpkit]
cases = [{extra_args = {bias = 1.5}}, {temperature = 0.5}]
hosts = ["v2"]
vocab_size = 1024
max_num_seqs = 16
environment = {MY_TABLE = "a.json"}
model = {think_end_id = 7}
tokenizer = "."
[tool.lpkit.expected_failures]
LP202 = "known"
lp203 = {reason = "later", until = 2031-02-03}
""",
    )
    assert found.cases == ({"extra_args": {"bias": 1.5}}, {"temperature": 0.5})
    assert (found.hosts, found.vocab_size, found.max_num_seqs) == (("v2",), 1024, 16)
    assert found.environment == {"MY_TABLE": "a.json"}
    assert (found.model, found.tokenizer) == ({"think_end_id": 7}, str(tmp_path.resolve()))
    assert found.expected == (
        ExpectedFailure("LP202", "known"),
        ExpectedFailure("LP203", "later", datetime.date(2031, 2, 3)),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tool.lpkit", "is not valid TOML"),
        ("\xff\xfe\x00", "is not valid TOML"),
        ("tool = 3", "tool.lpkit must be a table"),
        ("[tool]\nlpkit = 3", "tool.lpkit must be a table"),
        ('[project.entry-points]\n"vllm.logits_processors" = 1', "must be a table"),
        ("[tool.lpkit]\ncase = []", "unknown key 'case'; did you mean 'cases'?"),
        ("[tool.lpkit]\ntokeniser = 'x'", "unknown key 'tokeniser'; did you mean 'tokenizer'?"),
        ("[tool.lpkit]\ntokenizer = 'x'", "tokenizer must be a folder with tokenizer.json, not 'x'"),
        ("[tool.lpkit]\nmodel = 3", "model must be a table"),
        ("[tool.lpkit]\nzzz = []", "unknown key 'zzz'; known: cases, hosts"),
        ("[tool.lpkit]\ncases = {extra_args = {}}", "cases must be a list, not {'extra_args'"),
        ('[tool.lpkit]\nhosts = "v1"', "hosts must be a list of 'v1' and 'v2'"),
        ('[tool.lpkit]\nhosts = ["v3"]', "hosts must be a list of"),
        ("[tool.lpkit]\nhosts = []", "hosts must be a list of"),
        ("[tool.lpkit]\nhosts = [1]", "hosts must be a list of"),
        ("[tool.lpkit]\nenvironment = {A = 1}", "environment must be a table of name = string"),
        ("[tool.lpkit]\nvocab_size = 100", "vocab_size must be a multiple of 128, not 100"),
        ("[tool.lpkit]\nvocab_size = 0", "vocab_size must be a multiple of 128, not 0"),
        ("[tool.lpkit]\nmax_num_seqs = true", "max_num_seqs must be a positive integer, not True"),
        ("[tool.lpkit]\nexpected_failures = ['LP202']", "must be a table of code = reason"),
        ("[tool.lpkit.expected_failures]\nLP202 = ''", "LP202 needs a reason"),
        ("[tool.lpkit.expected_failures]\nLP202 = {until = 2031-01-01}", "LP202 needs a reason"),
        ("[tool.lpkit.expected_failures]\nLP202 = 1", "LP202 needs a reason"),
        ("[tool.lpkit.expected_failures]\nLP202 = {reason = 'x', when = 1}", "unknown keys ['when']"),
        ("[tool.lpkit.expected_failures]\nLP202 = {reason = 'x', until = 'soon'}", "until must be a date like"),
        ("[tool.lpkit.expected_failures]\nLP202 = {reason = 'x', until = 2031-01-01T00:00:00}", "until must be a date"),
    ],
)
def test_a_mistake_names_the_file_and_what_to_write(tmp_path, text: str, message: str) -> None:
    with pytest.raises(ProjectError) as error:
        find(tmp_path, text)
    assert str(tmp_path / "pyproject.toml") in str(error.value)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("target", "owned"),
    [
        ("mine", True),
        ("my_pkg.processor:Mine", True),
        ("my_pkg.processor:Other", True),
        ("loose:Thing", True),
        ("{root}/src/my_pkg/processor.py:Other", True),
        ("{root}/src/my_pkg/processor.py", True),
        ("theirs", False),
        ("their_pkg.processor:Mine", False),
        ("{root}/../elsewhere.py:Mine", False),
    ],
)
def test_settings_hold_for_the_projects_own_targets(tmp_path, target: str, owned: bool) -> None:
    package = tmp_path / "src" / "my_pkg"
    package.mkdir(parents=True)
    (package / "processor.py").touch()
    (tmp_path / "loose.py").touch()
    assert find(tmp_path, HEAD).owns(target.format(root=tmp_path)) is owned


def test_relative_files_are_the_projects_and_modules_come_from_src_first(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    found = find(tmp_path, HEAD)
    assert found.owns("processor.py:Mine")
    assert found.import_path == [str(tmp_path / "src"), str(tmp_path)]


def test_an_expected_failure_ends_after_its_date() -> None:
    today = datetime.date.today()
    assert not ExpectedFailure("LP202", "x").expired
    assert not ExpectedFailure("LP202", "x", today).expired
    assert ExpectedFailure("LP202", "x", today - datetime.timedelta(days=1)).expired
