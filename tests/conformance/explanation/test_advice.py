"""The file of advice: complete, without unused texts, and in words that its readers know."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import lpkit_conformance
import pytest
from lpkit_conformance import checks
from lpkit_conformance.explanation.advice import CAUSES, FIXES, UnknownAdviceError, cause, fix, grouped, signed
from lpkit_conformance.explanation.experiments import EXPERIMENTS
from lpkit_conformance.explanation.hazards import Hazard
from lpkit_conformance.settings.hosts import HOSTS
from lpkit_conformance.subject.worlds import RECORDED, WORLDS

HAZARDS = set(get_args(Hazard))
UNSEEN = ("ctx.", "row's slot", "batch_update", "update_state", "`added`", "max_num_seqs", "max_num_reqs")
"""Words for objects that no author of a callable or a portable class sees."""


def literals() -> Iterator[str]:
    """Every string in the source of the suite."""
    for path in Path(lpkit_conformance.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_each_key_is_used() -> None:
    used = set(literals())
    for table in (CAUSES, FIXES):
        unused = {f"{group}: {key}" for group, texts in table.items() for key in texts if key not in used}
        assert not {name for name in unused if not name.startswith("exception: ")}
    assert FIXES["exception"].keys() <= CAUSES["exception"].keys()


def test_no_check_states_a_cause_or_a_fix_of_its_own() -> None:
    stated = [
        f"{path.name}:{node.value.lineno}"
        for path in Path(checks.__path__[0]).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.keyword) and node.arg in ("cause", "fix")
        if isinstance(node.value, ast.JoinedStr) or (isinstance(node.value, ast.Constant) and node.value.value)
    ]
    assert not stated, "the text belongs in advice.toml"


def test_every_engine_configuration_that_has_to_work_has_a_fix() -> None:
    assert all(fix(world.fix, "LP221") for world in (*WORLDS, RECORDED))


def test_experiments_name_keys_that_exist() -> None:
    for experiment in EXPERIMENTS:
        assert not experiment.cause or cause(experiment.cause)
        for interface in ("v1", "v2") if experiment.fix else ():
            assert fix(experiment.fix, interface)


def test_an_unknown_key_names_the_nearest() -> None:
    with pytest.raises(UnknownAdviceError, match="no 'by-adress'; did you mean 'by-address'"):
        fix("by-adress")


def test_a_group_has_one_text_for_a_key() -> None:
    assert grouped({"v1, v2": {"a, b": "x"}, "v1": {"c": "y"}})["v1"] == {"a": "x", "b": "x", "c": "y"}
    with pytest.raises(ValueError, match="two texts for 'a' in 'v1'"):
        grouped({"v1, v2": {"a, b": "x"}, "v1": {"a": "y"}})


def test_every_hazard_has_a_fix_on_the_hosts_that_know_it_and_one_for_exceptions() -> None:
    only = {"drafts": {"v2"}, "swap": {"v1"}}
    interfaces = {row.interface for row in HOSTS.values()}
    for hazard in HAZARDS:
        assert {name for name in interfaces if hazard in FIXES[name]} == only.get(hazard, interfaces), hazard
    assert FIXES["raised"].keys() == HAZARDS


@pytest.mark.parametrize("style", ["adapter", "portable"])
def test_a_fix_names_no_interface_that_its_reader_does_not_see(style: str) -> None:
    others = {"advances", "draws", "kept", "optional", "single"}
    assert FIXES[style].keys() - others == HAZARDS - {"long", "short"} | {"common", "read"}
    assert not [text for text in FIXES[style].values() if any(word in text for word in UNSEEN)]


def test_a_lone_request_has_no_neighbour_to_blame() -> None:
    assert CAUSES["alone"].keys() < CAUSES["any"].keys()
    texts = CAUSES["alone"].values()
    assert not [text for text in texts if "belongs to another" in text or "state of another" in text]


def test_a_sign_is_looked_for_on_the_line_at_fault_and_then_in_its_file(tmp_path: Path) -> None:
    file = tmp_path / "fills.py"
    file.write_text("width = 1\nids = pad_sequence(lists)\n")
    assert signed("filled", f"{file}:1") == f"{file}:2"
    assert signed("LP303", f"{file}:1") == ""
