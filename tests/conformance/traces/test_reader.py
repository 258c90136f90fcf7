"""A file that is not a trace is refused with its name, the line, what is wrong and what was expected."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lpkit_conformance import traces

Lines = list[dict[str, Any]]

V1: Lines = [
    {
        "schema": "lpkit.trace/1",
        "runner": "v1",
        "workload": "tiny",
        "engine": {"name": "vllm", "version": "0.32.0", "driver": "engine", "runner_class": "a.B"},
        "settings": {"max_num_seqs": 4, "max_model_len": 8, "vocab_size": 128},
        "token_ids": "remapped",
        "requests": {
            "r0": {"prompt_len": 2, "prompt": [0, 1]},
            "r1": {"prompt_len": 3, "prompt": None},
        },
        "steps": 4,
    },
    {
        "step": 0,
        "update": {
            "batch_size": 2,
            "removed": [],
            "added": [{"row": 0, "request": "r0", "outputs": 0}, {"row": 1, "request": "r1", "outputs": 0}],
            "moved": [],
        },
        "rows": ["r0", "r1"],
        "applied": True,
        "discarded": ["r1"],
        "tokens": {"r0": [2]},
    },
    {
        "step": 1,
        "update": None,
        "rows": ["r0", "r1"],
        "applied": True,
        "discarded": [],
        "tokens": {"r0": [3], "r1": [1]},
    },
    {
        "step": 2,
        "update": {"batch_size": 2, "removed": [], "added": [], "moved": [[0, 1, "<->"]]},
        "rows": ["r1", "r0"],
        "applied": True,
        "discarded": [],
        "tokens": {"r0": [4], "r1": [1]},
    },
    {
        "step": 3,
        "update": {"batch_size": 1, "removed": [], "added": [], "moved": [[1, 0, "->"]]},
        "rows": ["r0"],
        "applied": True,
        "discarded": [],
        "tokens": {"r0": [5]},
    },
]
V2: Lines = [
    {**V1[0], "runner": "v2", "requests": {"r0": {"prompt_len": 2, "prompt": [0, 1]}}, "steps": 3},
    {
        "step": 0,
        "freed": [],
        "added": [{"request": "r0", "slot": 3, "prompt_len": 2, "prefill_len": 2}],
        "flush": True,
        "applies": [
            {"rows": ["r0"], "pos": [0], "local": [0], "inputs": [0], "bounds": [1], "discarded": ["r0"]},
        ],
        "tokens": {},
    },
    {
        "step": 1,
        "freed": [],
        "added": [],
        "flush": True,
        "applies": [
            {
                "rows": ["r0", "r0"],
                "pos": [1, 2],
                "local": [0, 1],
                "inputs": [1, -1],
                "bounds": [3, 0],
                "discarded": [],
            }
        ],
        "tokens": {"r0": [7, 8]},
    },
    {"step": 2, "freed": ["r0"], "added": [], "flush": True, "applies": [], "tokens": {}},
]


def _text(lines: Lines) -> str:
    return "".join(json.dumps(line) + "\n" for line in lines)


def _refused(tmp_path: Path, text: str) -> str:
    path = tmp_path / "some.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(traces.TraceError) as caught:
        traces.load(path)
    assert str(caught.value).startswith(str(path))
    return str(caught.value).removeprefix(str(path))


@pytest.mark.parametrize("lines", [V1, V2], ids=["v1", "v2"])
def test_a_well_formed_file_loads_from_any_path(tmp_path: Path, lines: Lines) -> None:
    path = tmp_path / "some.jsonl"
    path.write_text(_text(lines), encoding="utf-8")
    trace = traces.load(path)
    assert trace == traces.load(str(path))
    assert len(trace.steps) == len(lines) - 1
    assert trace.path == str(path)


def test_a_missing_file_is_refused_with_the_names_that_exist() -> None:
    with pytest.raises(traces.TraceError, match=r"nothing\.jsonl: no such file.*v1_churn"):
        traces.load("nothing.jsonl")


def test_a_folder_and_a_binary_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(traces.TraceError, match="cannot be read"):
        traces.load(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(traces.TraceError, match="cannot be read"):
        traces.load(tmp_path / "binary")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ":1: the file is empty"),
        ("{", ":1: the line: Invalid JSON"),
        ("[]", ":1: the line: Input should be an object, not []"),
        ('{"schema": "lpkit.trace/2"}', ":1: schema is 'lpkit.trace/2'; this version of lpkit reads 'lpkit.trace/1'"),
        ('{"schema": "lpkit.trace/1"}', ":1: runner: Field required"),
        (_text(V1[:-1]), ":1: the header announces 4 steps, but 3 lines follow"),
        (_text(V1[:-1]) + "{]\n", ":5: the line: Invalid JSON"),
    ],
)
def test_text_that_is_no_trace_is_refused(tmp_path: Path, text: str, said: str) -> None:
    assert _refused(tmp_path, text).startswith(said)


def _set(*keys: str | int, to: Any) -> Callable[[Lines], None]:
    def change(lines: Lines) -> None:
        place: Any = lines
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = to

    return change


_FORM: list[tuple[Callable[[Lines], None], str]] = [
    (_set(0, "runner", to="v3"), ":1: runner: Input should be 'v1' or 'v2', not \"v3\""),
    (_set(0, "engine", "driver", to="car"), ":1: engine.driver: Input should be 'engine' or 'input_batch', not "),
    (_set(0, "colour", to="red"), ":1: unknown key 'colour'"),
    (_set(0, "settings", to={}), ":1: settings.max_num_seqs is None; expected an integer of at least 1"),
    (
        _set(0, "settings", "vocab_size", to="128"),
        ":1: settings.vocab_size is '128'; expected an integer of at least 1",
    ),
    (_set(0, "requests", "r0", "prompt", to=[1]), ":1: requests.r0 has 1 prompt ids; expected prompt_len = 2"),
    (_set(0, "requests", "r0", "text", to="hello"), ":1: unknown key 'requests.r0.text'"),
    (_set(1, "applied", to=1), ":2: applied: Input should be a valid boolean, not 1"),
    (_set(1, "rows", to="r0"), ':2: rows: Input should be a valid array, not "r0"'),
    (_set(1, "rows", to=[0]), ":2: rows[0]: Input should be a valid string, not 0"),
    (_set(1, "update", "batchsize", to=3), ":2: unknown key 'update.batchsize'; did you mean 'batch_size'?"),
    (_set(1, "update", "removed", to=[True]), ":2: update.removed[0]: Input should be a valid integer, not true"),
    (_set(1, "update", "added", to=[{"row": 0}]), ":2: update.added[0].request: Field required"),
    (_set(1, "update", "moved", to=[[1, 0]]), ":2: update.moved[0][2]: Field required"),
    (_set(1, "update", "moved", to=[[1, 0, "<-"]]), ":2: update.moved[0][2]: Input should be '->' or '<->', not "),
    (_set(1, "tokens", "r0", to=[-1]), ":2: tokens.r0[0]: Input should be greater than or equal to 0, not -1"),
]
_MEANING: list[tuple[Callable[[Lines], None], str]] = [
    (
        _set(0, "requests", "r0", "prompt", to=[0, 128]),
        ":1: the prompt ids of r0: id 128 is not below vocab_size = 128",
    ),
    (_set(2, "step", to=7), ":3: step is 7; expected 1"),
    (_set(1, "rows", to=["r1", "r0"]), ":2: rows are ['r1', 'r0']; the updates give ['r0', 'r1']"),
    (_set(1, "update", "removed", to=[0]), ":2: removed names row 0, which was not occupied"),
    (_set(3, "update", "removed", to=[0, 1]), ":4: removed is [0, 1]; expected strictly descending rows"),
    (_set(1, "update", "batch_size", to=3), ":2: occupied rows are [0, 1]; batch_size is 3"),
    (_set(1, "update", "batch_size", to=5), ":2: batch_size is 5; max_num_seqs is 4"),
    (_set(1, "update", "added", 0, "request", to="r9"), ":2: added names 'r9', which the header does not list"),
    (_set(1, "update", "added", 0, "outputs", to=1), ":2: 'r0' enters with 1 outputs; it has committed 0"),
    (_set(1, "update", "added", 1, "row", to=0), ":2: added names row 0 twice"),
    (_set(1, "update", "added", 1, "request", to="r0"), ":2: a request has two rows"),
    (_set(3, "update", "moved", to=[[2, 1, "->"]]), ":4: move 2->1: nothing to move"),
    (_set(3, "update", "moved", to=[[0, 2, "<->"]]), ":4: move 0<->2: row 2 is empty"),
    (_set(1, "discarded", to=["r2"]), ":2: discarded names ['r2'], which have no row"),
    (_set(1, "tokens", to={}), ":2: 'r0' has a sampled row that is not discarded, but commits no token"),
    (_set(1, "tokens", "r1", to=[1]), ":2: 'r1' commits tokens, but no row of it was sampled and kept"),
    (_set(2, "applied", to=False), ":3: 'r0' commits tokens, but no row of it was sampled"),
    (_set(2, "tokens", "r0", to=[128]), ":3: tokens of r0: id 128 is not below vocab_size = 128"),
    (_set(2, "tokens", "r0", to=[1] * 6), ":3: 'r0' is 9 tokens long; max_model_len is 8"),
    (_set(2, "placeholders", to={"r0": 2}), ":3: placeholders has 2 for 'r0', which has no row or not as many tokens"),
    (_set(2, "placeholders", to={"r0": 0}), ":3: placeholders.r0: Input should be greater than or equal to 1, not 0"),
    (_set(2, "lists", to={"r0": 5}), ":3: lists cuts 'r0' to 5, but it only has 1 tokens"),
]
_V2: list[tuple[Callable[[Lines], None], str]] = [
    (_set(1, "update", to=None), ":2: unknown key 'update'"),
    (_set(1, "added", 0, "slot", to=4), ":2: 'r0' enters slot 4, which is taken or does not exist"),
    (_set(1, "added", 0, "prefill_len", to=3), ":2: 'r0' enters with prompt_len 2 and prefill_len 3; expected 2 and 2"),
    (_set(1, "flush", to=False), ":2: requests were added, but no flush follows"),
    (_set(1, "applies", 0, "discarded", to=[]), ":2: the row of 'r0' at 0 is discarded: False"),
    (_set(1, "applies", 0, "inputs", to=[9]), ":2: the input of 'r0' at 0 is 9; its token there is 0"),
    (_set(1, "applies", 0, "pos", to=[0, 1]), ":2: rows, pos, local and inputs differ in length"),
    (_set(1, "applies", 0, "bounds", to=[0]), ":2: bounds has 0 for 'r0', less than the 1 tokens it sees"),
    (_set(1, "applies", 0, "bounds", to=[1, 2]), ":2: bounds must hold one length per request, then only zeros"),
    (_set(1, "applies", 0, "rows", to=["r7"]), ":2: a row belongs to 'r7', which has no slot"),
    (_set(2, "applies", 0, "local", to=[0, 2]), ":3: local is 2 for a row of 'r0'; expected 1"),
    (_set(2, "applies", 0, "pos", to=[2, 3]), ":3: 'r0' is sampled at position 2; it has 2 tokens"),
    (_set(2, "applies", 0, "inputs", to=[1, 9]), ":3: 'r0' commits [7, 8], which does not follow from its drafts [9]"),
    (_set(2, "tokens", "r0", to=[7, 8, 9]), ":3: 'r0' commits [7, 8, 9], which does not follow from its drafts [-1]"),
    (_set(3, "freed", to=["r0", "r0"]), ":4: freed names 'r0', which has no slot"),
]


@pytest.mark.parametrize(
    ("right", "change", "said"),
    [*((V1, *wrong) for wrong in (*_FORM, *_MEANING)), *((V2, *wrong) for wrong in _V2)],
    ids=lambda value: value if type(value) is str else "",
)
def test_a_wrong_line_is_refused(tmp_path: Path, right: Lines, change: Callable[[Lines], None], said: str) -> None:
    lines = copy.deepcopy(right)
    change(lines)
    assert _refused(tmp_path, _text(lines)).startswith(said)


def test_a_cut_output_list_goes_on_from_its_new_length(tmp_path: Path) -> None:
    lines = copy.deepcopy(V1)
    lines[3]["lists"] = {"r0": 0}
    path = tmp_path / "some.jsonl"
    path.write_text(_text(lines), encoding="utf-8")
    step = traces.load(path).v1_steps[2]
    assert step.lists == {"r0": 0}
    assert "cut" in traces.kinds(step)
