"""Arguments of ``vllm serve`` force a runner, or bypass processors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from doctor_place import ONLY_V1, PORTABLE, Place, codes, said, the
from lpkit_conformance.discovery.runner_choice import SWITCH
from lpkit_conformance.doctor.serving import _MODULES, read_command
from lpkit_conformance.errors import UsageError

SERVE = ("vllm", "serve", "model")
SUFFIX = ("--speculative-config", '{"method": "suffix"}')
WATERMARK = ("--watermark-config", '{"algorithm": "gumbel"}')
HISPARSE = ("--kv-transfer-config", '{"kv_connector": "HiSparseConnector"}')


class TestReading:
    @pytest.mark.parametrize(
        "words",
        [
            ("--speculative-config", '{"method": "suffix"}'),
            ('--speculative-config={"method": "suffix"}',),
            ("--speculative_config.method", "suffix"),
            ("--speculative-config.method=suffix",),
            ("-sc", '{"method": "suffix"}'),
            ("-sc.method", "suffix"),
        ],
    )
    def test_every_way_to_write_an_object_gives_it(self, words: tuple[str, ...]) -> None:
        assert read_command((*SERVE, *words, "--port", "80")).options["speculative-config"] == {"method": "suffix"}

    def test_variables_in_front_and_several_processors_are_read(self) -> None:
        words = (f"{SWITCH}=0", *SERVE, "--logits-processors", "a:A", "b:B", "--no-async-scheduling", "--dtype", "half")
        serving = read_command(words)
        assert serving.environment == {SWITCH: "0"}
        assert serving.passed == ("a:A", "b:B")
        assert serving.no_async
        assert not serving.drafts

    @pytest.mark.parametrize("other", [("-tp", "2"), ("-O3",), ("-q=awq",), ("--port", "80")])
    def test_any_option_ends_the_list_of_processors(self, other: tuple[str, ...]) -> None:
        assert read_command((*SERVE, "--logits-processors", "a:A", *other)).passed == ("a:A",)

    @pytest.mark.parametrize(
        "before",
        [("env", f"{SWITCH}=0", "/usr/bin/vllm", "serve"), (f"{SWITCH}=0", "python", "-m", *_MODULES)],
    )
    def test_variables_count_wherever_they_stand_before_the_server(self, before: tuple[str, ...]) -> None:
        serving = read_command((*before, "--enable-dbo=False", "--no-async-scheduling"))
        assert serving.environment == {SWITCH: "0"}
        assert serving.no_async
        assert serving.demands(None).v1 == ()

    def test_a_command_that_serves_nothing_is_refused(self) -> None:
        with pytest.raises(UsageError, match="no `vllm serve` in the command 'vllm bench'"):
            read_command(("vllm", "bench"))

    @pytest.mark.parametrize(
        ("word", "near"),
        [
            ("--speculative-confg", "--speculative-config"),
            ("--logit-processors", "--logits-processors"),
            ("--no-async-schedule", "--async-scheduling"),
            ("--enable-trace-replays", "--enable-trace-replay"),
            ("--runer", "--runner"),
            ("--modle", "--model"),
            ("--max-num-sqes", "--max-num-seqs"),
            ("--max-num-sequences", "--max-num-seqs"),
            ("--enable-prompt-embds", "--enable-prompt-embeds"),
            ("--gpu-memory-utilisation", "--gpu-memory-utilization"),
        ],
    )
    def test_a_misspelt_option_is_refused_with_the_nearest(self, word: str, near: str) -> None:
        with pytest.raises(UsageError, match=f"no option {word}.*did you mean '{near}'"):
            read_command((*SERVE, word, "x"))
        assert read_command((*SERVE, "--port", "80", "--ec-transfer-config", "{}", "--no-enable-dbo")).options

    def test_an_option_of_another_release_is_none_that_is_misspelt(self) -> None:
        words = (*SERVE, "--max-num-steps", "4", "--num-lookahead-slots", "2", "--task", "embed")
        assert read_command(words, (0, 9, 2)).options
        with pytest.raises(UsageError, match=r"--max-num-steps in 0.32.0.*add --vllm VERSION"):
            read_command(words)
        with pytest.raises(UsageError, match=r"--num-lookahead-slots in 0.32.0.*see vllm serve --help=all"):
            read_command((*SERVE, "--num-lookahead-slots", "2", "-dcp", "2"), (0, 32, 0))

    @pytest.mark.parametrize(
        ("word", "value", "option"),
        [
            ("--logits-proc", "a:A", "logits-processors"),
            ("--speculative", '{"method": "suffix"}', "speculative-config"),
            ("--no_async_sched", True, "no-async-scheduling"),
            ("--max-num-seq", "8", "max-num-seqs"),
        ],
    )
    def test_the_beginning_of_an_option_stands_for_it_as_in_vllm(self, word: str, value: Any, option: str) -> None:
        words = (word,) if value is True else (word, value)
        assert option in read_command((*SERVE, *words)).options

    def test_the_beginning_of_several_options_is_refused_as_by_vllm(self) -> None:
        with pytest.raises(UsageError, match="no option --max-num "):
            read_command((*SERVE, "--max-num", "8"), (0, 32, 0))

    def test_a_value_that_no_release_has_is_refused_with_the_nearest(self) -> None:
        with pytest.raises(UsageError, match=r"--runner cannot be 'poolin'.*did you mean 'pooling'"):
            read_command((*SERVE, "--runner", "poolin"))
        assert read_command((*SERVE, "--runner", "pooling", "--convert", "none")).pooling

    def test_the_options_of_a_file_are_read_and_those_of_the_command_win(self, tmp_path: Path) -> None:
        file = tmp_path / "vllm.yaml"
        file.write_text(
            "logits-processors: [a:A, b:B]\nno-async-scheduling: true\nenable-dbo: false\n"
            "speculative-config:\n  method: suffix\ntensor-parallel-size: 2\n"
        )
        serving = read_command((*SERVE, "--config", str(file)))
        assert serving.passed == ("a:A", "b:B")
        assert serving.no_async
        assert serving.options["speculative-config"] == {"method": "suffix"}
        assert "enable-dbo" not in serving.options
        assert read_command((*SERVE, "--config", str(file), "--logits-processors", "c:C")).passed == ("c:C",)
        with pytest.raises(UsageError, match="cannot be read"):
            read_command((*SERVE, "--config", str(tmp_path / "gone.yaml")))

    @pytest.mark.parametrize("value", ["{method: suffix}", "[1]"])
    def test_what_is_no_object_is_refused_with_its_text(self, value: str) -> None:
        with pytest.raises(UsageError, match="takes a JSON object"):
            read_command((*SERVE, "--speculative-config", value))


class TestRunner:
    @pytest.mark.parametrize("words", [("--runner", "pooling"), ("--convert", "embed"), ("--task", "score")])
    def test_a_pooling_model_runs_no_processor_and_refuses_passed_ones(
        self, site: Place, words: tuple[str, ...]
    ) -> None:
        place = site.plugin(PORTABLE).engine("0.32.0")
        report = place.examine(command=(*SERVE, *words))
        assert (codes(report, "error"), said(report)) == (["not-loaded"], ["inactive"])
        assert " ".join(words) in the(report, "not-loaded").evidence
        report = place.examine(command=(*SERVE, *words, "--logits-processors", "plug:P"))
        assert "engine-refuses" in codes(report, "error")
        assert said(place.examine(command=(*SERVE, "--runner", "generate"))) == ["starts"]

    def test_a_watermark_needs_triton(self, site: Place) -> None:
        place = site.plugin(PORTABLE).engine("0.32.0", triton=False)
        assert "Triton is not installed" in the(place.examine(command=(*SERVE, *WATERMARK)), "engine-refuses").evidence
        assert codes(place.engine("0.32.0").examine(command=(*SERVE, *WATERMARK)), "error") == []

    def test_drafts_by_suffixes_need_their_package(self, site: Place) -> None:
        place = site.engine("0.32.0")
        assert "Arctic" in the(place.examine(command=(*SERVE, *SUFFIX)), "engine-refuses").evidence
        place.write("arctic_inference/__init__.py")
        assert codes(place.examine(command=(*SERVE, *SUFFIX)), "error") == []

    @pytest.mark.parametrize(
        ("release", "method", "runner"),
        [
            ("0.31.0", "ngram", "v1"),
            ("0.32.0", "ngram", "v2"),
            ("0.32.0", "medusa", "v1"),
            ("0.33.0", "medusa", "v2"),
            ("0.33.0", "suffix", "v1"),
            ("0.33.0", "eagle3", "v2"),
        ],
    )
    def test_some_drafters_keep_a_release_on_v1(self, site: Place, release: str, method: str, runner: str) -> None:
        command = (*SERVE, "--speculative-config.method", method)
        report = site.plugin(PORTABLE).examine(release=release, command=command)
        assert report.situation.runner == runner
        assert said(report) == ["inactive" if runner == "v1" else "starts"]
        assert ("v1-deprecated" in codes(report)) == (runner == "v1")

    @pytest.mark.parametrize(
        "words",
        [
            ("--speculative-config", '{"method": "eagle", "parallel_drafting": true}'),
            ("--speculative-config", '{"method": "draft_model", "use_heterogeneous_vocab": true}'),
            ("--distributed-executor-backend", "external_launcher", "-pp", "2"),
            ("--enable-dbo",),
        ],
    )
    def test_other_features_keep_the_engine_on_v1(self, site: Place, words: tuple[str, ...]) -> None:
        report = site.plugin(PORTABLE).examine(release="0.33.0", command=(*SERVE, *words))
        assert report.situation.runner == "v1"
        assert "does not support" in report.situation.choice.reason
        first = site.examine(release="0.31.0", command=(*SERVE, *words))  # V2 did not ask for the vocabulary until 0.32
        assert first.situation.runner == ("v2" if "heterogeneous" in str(words) else "v1")

    @pytest.mark.parametrize(
        "words",
        [
            ("--enable-elastic-ep",),
            ("--mamba-cache-mode", "all"),
            ("--compilation-config", '{"mode": 1}'),
            ("-tp", "2", "-cc.pass_config.enable_sp=true"),
        ],
    )
    def test_what_v2_has_since_0_32_keeps_an_older_engine_on_v1(self, site: Place, words: tuple[str, ...]) -> None:
        old, new = (
            site.plugin(PORTABLE).examine(release=release, command=(*SERVE, *words)) for release in ("0.31.0", "0.32.0")
        )
        assert (old.situation.runner, new.situation.runner) == ("v1", "v2")
        assert "does not support" in old.situation.choice.reason

    def test_sequence_parallelism_on_one_rank_and_vllms_own_compilation_leave_it_on_v2(self, site: Place) -> None:
        words = ("-cc.pass_config.enable_sp=true", "-cc.mode=3")
        assert site.plugin(PORTABLE).examine(release="0.31.0", command=(*SERVE, *words)).situation.runner == "v2"

    @pytest.mark.parametrize("words", [("--enable-dbo",), ("--ubatch-size", "2")])
    def test_dual_batch_overlap_is_on_v2_where_the_switch_asks_for_it(
        self, site: Place, words: tuple[str, ...]
    ) -> None:
        place = site.plugin(PORTABLE)
        command = (f"{SWITCH}=1", *SERVE, *words)
        assert place.examine(release="0.32.0", command=(*SERVE, *words)).situation.runner == "v1"
        assert codes(place.examine(release="0.32.0", command=command), "error") == []
        issue = the(place.examine(release="0.32.0", command=(*command, "-pp", "2")), "engine-refuses")
        assert "dual batch overlap with pipeline parallelism" in issue.evidence

    @pytest.mark.parametrize(
        ("words", "feature"),
        [
            (("--enable-batch-sharded-sampling",), "batch-sharded sampling"),
            (("-sc.method", "dspark"), "speculative method 'dspark'"),
            (("-sc.method=mtp", "-sc.enable_adaptive_verification=true"), "adaptive verification of drafts"),
            (("--prefill-context-parallel-size", "2"), "prefill context parallelism"),
            (("-pp", "2", "--async-scheduling"), "pipeline parallelism with asynchronous scheduling"),
        ],
    )
    def test_what_v1_refuses_is_not_sent_there(self, site: Place, words: tuple[str, ...], feature: str) -> None:
        place = site.plugin(ONLY_V1)
        blocked = the(place.examine(release="0.32.0", command=(*SERVE, *words)), "blocks-start")
        assert SWITCH not in blocked.remedy
        refused = the(place.examine(release="0.32.0", command=(f"{SWITCH}=0", *SERVE, *words)), "engine-refuses")
        assert f"The V1 runner does not support {feature}, and it is used here: {SWITCH}=0" in refused.evidence
        assert refused.remedy == f"Unset {SWITCH}"
        assert read_command((*SERVE, *words)).demands((0, 28, 0)).only_v2 == ()

    def test_a_processor_that_moves_the_engine_to_v1_stops_it_where_v1_lacks_something(self, site: Place) -> None:
        words = (*SERVE, "--enable-batch-sharded-sampling")
        report = site.plugin(ONLY_V1).examine(release="0.30.0", command=words)
        issue = the(report, "engine-refuses")
        assert issue.problem == "vLLM 0.30.0 does not start with a custom processor"
        assert issue.remedy.endswith("or leave out batch-sharded sampling")
        other = site.examine(release="0.32.0", command=(*words, "--enable-dbo"))
        assert the(other, "engine-refuses").remedy == "Leave out batch-sharded sampling"

    def test_vllms_rule_for_deepseek_ocr_is_known_to_be_v1s_and_what_replaces_it(self, site: Place) -> None:
        target = "vllm.model_executor.models.deepseek_ocr:NGramPerReqLogitsProcessor"
        report = site.examine(release="0.32.0", command=(*SERVE, "--logits-processors", target))
        assert "use lpkit-ocr-ngram (lpkit_ocr_ngram.processor:OcrNgram)" in the(report, "blocks-start").remedy

    def test_v2_that_is_asked_for_with_what_only_v1_has_is_refused(self, site: Place) -> None:
        report = site.plugin(PORTABLE).examine(release="0.33.0", command=(f"{SWITCH}=1", *SERVE, *SUFFIX))
        assert codes(report, "error") == ["engine-refuses"]

    def test_that_is_refused_without_any_processor_too(self, site: Place) -> None:
        report = site.examine(release="0.33.0", command=(f"{SWITCH}=1", *SERVE, *SUFFIX))
        assert the(report, "engine-refuses").problem == "vLLM 0.33.0 does not start"

    def test_the_watermark_overrides_the_switch_so_it_is_no_remedy(self, site: Place) -> None:
        report = site.plugin(ONLY_V1).examine(release="0.32.0", command=(f"{SWITCH}=0", *SERVE, *WATERMARK))
        issue = the(report, "blocks-start")
        assert report.situation.runner == "v2"
        assert SWITCH not in issue.remedy
        assert "lpkit new my-proc --wrap plug:P" in issue.remedy

    def test_before_0_30_nothing_overrides_the_switch(self, site: Place) -> None:
        report = site.plugin(ONLY_V1).examine(release="0.29.0", command=(f"{SWITCH}=0", *SERVE, *WATERMARK))
        assert report.situation.runner == "v1"

    def test_hisparse_refuses_a_switch_that_says_v1(self, site: Place) -> None:
        report = site.plugin(PORTABLE).examine(release="0.32.0", command=(f"{SWITCH}=0", *SERVE, *HISPARSE))
        assert "HiSparse" in the(report, "engine-refuses").evidence
        assert site.examine(release="0.32.0", command=(*SERVE, *HISPARSE)).situation.runner == "v2"

    def test_the_deprecated_runner_that_was_asked_for_is_noted(self, site: Place) -> None:
        report = site.plugin(PORTABLE).examine(release="0.32.0", command=(f"{SWITCH}=0", *SERVE))
        assert "v1-deprecated" in codes(report)
        assert report.ok


class TestFeatures:
    @pytest.mark.parametrize(("option", "codes_expected"), [("-dc", ["sampler-replaced"]), ("-cc", [])])
    def test_a_model_that_samples_by_itself_applies_no_processor(
        self, site: Place, option: str, codes_expected: list[str]
    ) -> None:
        report = site.plugin(PORTABLE).examine(release="0.32.0", command=(*SERVE, option, "{}"))
        assert codes(report, "error") == codes_expected

    @pytest.mark.parametrize(
        ("architecture", "codes_expected"),
        [("DiffusionGemmaForBlockDiffusion", ["sampler-replaced"]), ("Qwen3ForCausalLM", [])],
    )
    @pytest.mark.parametrize("folder", ["model", "hub/models--google--model/snapshots/1a2b"])
    def test_a_model_that_samples_by_itself_is_known_by_its_configuration(
        self, site: Place, tmp_path: Path, folder: str, architecture: str, codes_expected: list[str]
    ) -> None:
        held = tmp_path / folder
        held.mkdir(parents=True)
        (held / "config.json").write_text(f'{{"architectures": ["{architecture}"]}}')
        name = "google/model" if "hub" in folder else str(held)
        for words in ((name,), ("--model", name)):
            command = (f"HF_HOME={tmp_path}", "vllm", "serve", *words)
            report = site.plugin(PORTABLE).examine(release="0.32.0", command=command)
            assert codes(report, "error") == codes_expected

    @pytest.mark.parametrize("text", ["[]", "{", '{"architectures": null}'])
    def test_a_configuration_that_names_no_architecture_is_passed_over(
        self, site: Place, tmp_path: Path, text: str
    ) -> None:
        (tmp_path / "config.json").write_text(text)
        report = site.plugin(PORTABLE).examine(release="0.32.0", command=("vllm", "serve", str(tmp_path)))
        assert codes(report, "error") == []

    @pytest.mark.parametrize(("value", "told"), [("1", ["not-validated"]), ("0", [])])
    def test_a_front_end_that_validates_nothing_is_noted(self, site: Place, value: str, told: list[str]) -> None:
        command = (f"VLLM_USE_RUST_FRONTEND={value}", *SERVE)
        report = site.plugin(PORTABLE).examine(release="0.32.0", command=command)
        assert report.ok
        assert [code for code in codes(report) if code == "not-validated"] == told

    def test_synthetic_acceptance_is_a_problem(self, site: Place) -> None:
        draft = '{"method": "eagle", "rejection_sample_method": "synthetic"}'
        report = site.plugin(PORTABLE).examine(release="0.32.0", command=(*SERVE, "--speculative-config", draft))
        assert codes(report, "error") == ["drafts-unverified"]

    def test_fly_acceptance_is_a_note(self, site: Place) -> None:
        draft = '{"method": "eagle", "rejection_sample_method": "fly"}'
        report = site.plugin(PORTABLE).examine(release="0.33.0", command=(*SERVE, "--speculative-config", draft))
        assert codes(report) == ["drafts-inexact"]
        older = site.examine(release="0.32.0", command=(*SERVE, "--speculative-config", draft))
        assert "does not start" in the(older, "engine-refuses").problem

    @pytest.mark.parametrize("method", ["standard", "block"])
    def test_exact_verification_is_none(self, site: Place, method: str) -> None:
        draft = f'{{"method": "eagle", "rejection_sample_method": "{method}"}}'
        report = site.plugin(PORTABLE).examine(release="0.33.0", command=(*SERVE, "--speculative-config", draft))
        assert codes(report) == []

    def test_mask_replay_refuses_what_is_passed_and_misses_what_is_installed(self, site: Place, tmp_path: Path) -> None:
        site.plugin(PORTABLE)
        command = (*SERVE, "--return-sampling-mask")
        assert codes(site.examine(release="0.32.0", command=command)) == ["mask-biased"]
        both = site.examine(release="0.32.0", command=(*command, "--logits-processors", "plug:Other"))
        assert "replay-refused" in codes(both)

    def test_trace_replay_is_a_note_on_v2_and_refused_on_v1(self, site: Place) -> None:
        site.plugin(PORTABLE)
        command = (*SERVE, "--enable-trace-replay")
        assert codes(site.examine(release="0.32.0", command=command)) == ["trace-replayed"]
        on_v1 = site.examine(release="0.32.0", command=(f"{SWITCH}=0", *command))
        assert codes(on_v1, "error") == ["replay-refused"]


def test_numbers_in_a_configuration_file_are_no_flags(tmp_path: Path) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text("tensor-parallel-size: 1\nubatch-size: 0\nenforce-eager: true\n", encoding="utf-8")
    options = read_command((*SERVE, "--config", str(file))).options
    assert (options["tensor-parallel-size"], options["ubatch-size"], options["enforce-eager"]) == ("1", "0", True)
