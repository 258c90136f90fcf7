"""Parameters arrive through JSON and msgpack; what cannot mean anything is refused by name, what is foreign ignored."""

from __future__ import annotations

import math
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Annotated, Any, Literal

import lpkit
import numpy as np
import pytest
import torch
from lpkit.sampling_params import SamplingParams


class Bias(lpkit.Params, prefix="bias_"):
    strength: float = lpkit.Field(ge=-10.0, le=10.0)
    token: lpkit.TokenId = 0
    soft: bool = False
    decay: int = lpkit.Field(1, ge=0)


class Shapes(lpkit.Params, prefix="s_"):
    ids: list[lpkit.TokenId] = []
    pair: tuple[int, float] | None = None
    weights: dict[str, float] = {}
    mode: Literal["a", "b"] = "a"
    flag: bool | None = None
    number: int = 0
    real: float = 0.0
    text: str = ""


class Flags(lpkit.Params, prefix="f_"):
    many: list[bool] = []
    pair: tuple[bool, bool] | None = None
    some: tuple[bool, ...] = ()


class Target(lpkit.Params, prefix="target_token"):
    token: lpkit.TokenId = lpkit.Field(3, alias="target_token")


class Plain(lpkit.Params):
    size: int


class Range(lpkit.Params, prefix="range_"):
    low: int
    high: int

    def check_together(self) -> None:
        if self.low > self.high:
            raise ValueError(f"range_low {self.low} is above range_high {self.high}")


FOREIGN = {"kv_transfer_params": {"a": object()}, "other": 2**70, 5: "not even a string"}


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"bias_strength": 2, "bias_token": 7}, Bias(strength=2.0, token=7)),
        ({"bias_strength": 0, "bias_token": 0, "bias_decay": 0}, Bias(strength=0.0, token=0, decay=0)),
        ({"bias_strength": 1.0, "bias_decay": None}, Bias(strength=1.0, decay=1)),
        ({**FOREIGN, "bias_strength": 1.0}, Bias(strength=1.0)),
        (FOREIGN, None),
        (None, None),
        ({"bias_strength": None}, None),
        ({"range_low": 1, "range_high": 2}, Range(low=1, high=2)),
        ({}, None),
        ({"size": 3, "sizes": 4}, Plain(size=3)),
        ({"target_token": 0, "target_length": 5}, Target(target_token=0)),
        (None, Shapes()),
        ({"s_flag": True}, Shapes(flag=True)),
        ({"s_flag": 1}, Shapes(flag=True)),
        ({"s_flag": 0}, Shapes(flag=False)),
        ({"s_number": 2**63 - 1}, Shapes(number=2**63 - 1)),
        ({"s_number": -(2**63)}, Shapes(number=-(2**63))),
        ({"s_number": 2**53 + 1}, Shapes(number=2**53 + 1)),
        ({"s_real": 3.4e38}, Shapes(real=3.4e38)),
        ({"s_real": -1.2e-38}, Shapes(real=-1.2e-38)),
        ({"s_pair": [1, 2.5], "s_ids": (4, 5)}, Shapes(pair=(1, 2.5), ids=[4, 5])),
        ({"f_many": [1, 0, True], "f_pair": [0, 1]}, Flags(many=[True, False, True], pair=(False, True))),
        ({"f_some": (1,)}, Flags(some=(True,))),
    ],
)
def test_what_is_meant_is_parsed_and_foreign_keys_are_ignored(
    given: dict[Any, Any] | None, meant: lpkit.Params | None
) -> None:
    cls = Bias if meant is None else type(meant)
    found = cls.parse(given)
    assert found == meant
    # JSON's numbers are equal, their types are not.
    assert found is None or list(map(type, vars(found).values())) == list(map(type, vars(meant).values()))


def refused(cls: type[lpkit.Params], extra_args: dict[Any, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match) as caught:
        cls.parse(extra_args)
    assert type(caught.value) is ValueError  # vLLM turns exactly this into HTTP 400


def nested(depth: int) -> list[Any]:
    made: list[Any] = []
    for _ in range(depth):
        made = [made]
    return made


LOOP: list[Any] = []
LOOP.append(LOOP)


@pytest.mark.parametrize(
    ("cls", "given", "match"),
    [
        (Bias, {"bias_strenght": 2.0}, "unknown parameter 'bias_strenght'; did you mean 'bias_strength'"),
        (Bias, {"bias_q1w2": 2.0}, "unknown parameter 'bias_q1w2'; known: bias_strength, bias_token, bias_so"),
        (Target, {"target_tokens": 0}, "unknown parameter 'target_tokens'; did you mean 'target_token'"),
        (Target, {"target_token": -1}, "target_token: .*greater than or equal to 0"),
        (Bias, {"bias_token": 1}, "bias_token given without bias_strength"),
        (Bias, {"bias_strength": 11}, r"bias_strength: .*less than or equal to 10.*got 11"),
        (Bias, {"bias_strength": 1.0, "bias_token": -1}, "bias_token: .*greater than or equal to 0"),
        (Bias, {"bias_strength": "x", "bias_decay": -1}, "bias_strength: .*; bias_decay: "),
        (Range, {"range_low": 3, "range_high": 2}, "range_low 3 is above range_high 2"),
        (Range, {"range_low": 3, "range_high": "much"}, "range_high: Input should be a valid integer"),
        (Shapes, {"s_mode": "c"}, r"s_mode: .*'a' or 'b'.*got 'c'"),
        (Shapes, {"s_ids": [1, 2, -3]}, r"s_ids\.2: .*got -3"),
        (Shapes, {"s_pair": [1]}, "s_pair"),
        (Shapes, {"s_ids": LOOP}, "s_ids: list is not a JSON value .*Circular"),
        (Shapes, {"s_flag": True, "s_ids": nested(250)}, "s_ids: list is not a JSON value"),
        (Shapes, {"s_flag": True, "s_ids": nested(5000)}, "s_ids: list is not a JSON value"),
        (Flags, {"f_many": [2]}, "f_many"),
        (Flags, {"f_many": [1.0]}, "f_many"),
        (Flags, {"f_pair": [1]}, "f_pair"),
        *((Shapes, {"s_flag": sent}, "s_flag: ") for sent in (2, -1, 1.0, "true", "1", [1])),
        *((Shapes, {"s_number": sent}, "s_number: ") for sent in (True, False, 1.0, 1.5, "1", [1])),
        *((Shapes, {"s_real": sent}, "s_real: ") for sent in (True, "0.5", [0.5], {})),
        *((Shapes, {"s_real": sent}, "s_real: .*finite") for sent in (math.nan, math.inf, -math.inf)),
        (Shapes, {"s_weights": {"a": math.nan}}, "s_weights.a: .*finite"),
        *((Shapes, {"s_real": sent}, "s_real: .* does not fit in float32") for sent in (1e308, -1e39, 5e-324, -1e-39)),
        (Shapes, {"s_weights": {"a": 1e308}}, "s_weights: .* does not fit in float32"),
        *((Shapes, {"s_number": sent}, "s_number: .*64-bit") for sent in (2**63, 2**64 - 1, -(2**63) - 1, 10**40)),
        (Shapes, {"s_ids": [1, 2**63]}, "s_ids: .*64-bit"),
        (Shapes, {"s_weights": {"a": 2**63}}, "s_weights: .*64-bit"),
        *(
            (Shapes, {"s_real": sent}, "s_real: .*not a JSON value")
            for sent in (object(), SimpleNamespace(), {1: object()}, np.float32(1.0))
        ),
    ],
)
def test_what_cannot_mean_anything_is_refused_by_name(cls: type[lpkit.Params], given: Any, match: str) -> None:
    refused(cls, given, match)


def test_the_prefix_is_inherited_and_can_be_changed() -> None:
    class Same(Bias):
        more: int = 0

    class Other(Bias, prefix="other_"):
        pass

    assert Same.keys()["bias_more"] == "more"
    assert set(Other.keys()) == {"other_strength", "other_token", "other_soft", "other_decay"}
    assert Bias.lpkit_prefix == "bias_"


class Ids(lpkit.Params):
    few: list[lpkit.TokenId] = lpkit.Field([], max_length=4)
    many: list[Any] = []
    ids: list[lpkit.TokenId] = []
    grid: list[Annotated[list[lpkit.TokenId], lpkit.Field(max_length=3)]] = []
    table: dict[str, int] = {}


@pytest.mark.parametrize(
    ("extra_args", "match"),
    [
        ({"few": list(range(10**6))}, r"few: should have at most 4 items, not 1000000 \(got \[0, 1, "),
        ({"many": list(range(10**6))}, r"many: should have at most 524288 items, not 1000000 \(got \[0, 1, "),
        ({"many": [[100] * 2**12] * 2**10}, "many: should have at most 524288 items, with those of its inner lists"),
        ({"many": ["a" * 2**14] * 2**11}, r"many: \d+ bytes of JSON, more than the 16777216 that are read"),
        ({"grid": [[1], ["x"] * 10**6]}, r"grid\.1: should have at most 3 items, not 1000000"),
        ({"ids": [["x"] * 10**6]}, r"ids\.0: should have at most 524288 items, not 1000000"),
        ({"ids": [[[[[["x" * 20] * 8] * 8] * 8] * 8] * 8]}, r"\.\.\."),
        ({"table": {"k" * 10**6: "x"}}, r"^table\.k{50}\.\.\.k{50}: Input should be a valid integer \(got 'x'\)$"),
        ({"table": {"k" * 10**6: [1] * 10**6}}, r"^table\.k{50}\.\.\.k{50}: should have at most 524288 items"),
        (
            {"ids": [-1] * 2**16},
            r"65536 values are wrong: ids\.0: Input should be greater than or equal to 0 \(got -1\)",
        ),
        ({"ids": [1] * 50 + [-1] * 2**16}, "65536 values of ids are wrong"),
        ({"ids": "a" * 10**6}, r"ids: should have at most 524288 characters, not 1000000"),
        ({"ids": [-1] * 50}, r"\(got -1\); and 40 more$"),
        ({"ids": 10**4000}, r"ids: 10+\.\.\.0+ does not fit"),
    ],
)
def test_a_refusal_is_short_however_long_the_value(extra_args: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match) as refusal:
        Ids.parse(extra_args)
    assert len(str(refusal.value)) < 1000


def test_a_set_may_be_given_with_repetitions() -> None:
    class Distinct(lpkit.Params):
        ids: frozenset[int] = lpkit.Field(max_length=2)

    assert Distinct.parse({"ids": [1, 1, 2]}).ids == {1, 2}
    refused(Distinct, {"ids": [1, 2, 3]}, "ids: .*at most 2 items")


def test_a_list_that_is_too_long_is_refused_before_its_items_are_read() -> None:
    class Unread(list[int]):
        def __iter__(self) -> Any:
            raise AssertionError("it was read")

    refused(Ids, {"few": Unread(range(5))}, "at most 4 items")
    assert Ids.parse({"grid": [[1, 2, 3]] * 5}).grid == [[1, 2, 3]] * 5


def test_a_list_that_holds_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    refused(Ids, {"many": loop}, "with those of its inner lists|not a JSON value")


def test_the_arguments_are_not_changed() -> None:
    sent = {"s_ids": [1, 2], "s_flag": 1, "foreign": {"a": 1}}
    before = {"s_ids": [1, 2], "s_flag": 1, "foreign": {"a": 1}}
    found = Shapes.parse(sent)
    assert sent == before
    assert found is not None
    assert found.ids is not sent["s_ids"]


def test_parameters_are_read_only() -> None:
    found = Bias.parse({"bias_strength": 1.0})
    assert found is not None
    with pytest.raises(ValueError, match="frozen"):
        found.strength = 2.0


def test_token_ids_are_found_wherever_they_are_declared() -> None:
    class Many(lpkit.Params):
        one: lpkit.TokenId
        fixed: lpkit.TokenId = lpkit.Field(3, le=100)
        maybe: lpkit.TokenId | None = None
        many: list[lpkit.TokenId] = []
        nested: dict[str, tuple[lpkit.TokenId, ...]] = {}
        extra: Annotated[lpkit.TokenId, lpkit.Field(le=5)] = 0
        plain: int = 0
        numbers: list[int] = []

    assert set(Many.token_id_fields()) == {"one", "fixed", "maybe", "many", "nested", "extra"}


def test_equal_numbers_of_other_types_are_told_apart_however_often_they_come() -> None:
    class Mixed(lpkit.Params):
        flag: bool = False
        count: int = 0
        share: float = 0.0

    for _ in range(2):
        assert Mixed.parse({"flag": 1}) == Mixed(flag=True)
        assert Mixed.parse({"count": 1}) == Mixed(count=1)
        assert Mixed.parse({"share": 1}) == Mixed(share=1.0) == Mixed.parse({"share": 1.0})
        for wrong in ({"count": True}, {"count": 1.0}, {"flag": 1.0}, {"share": True}):
            with pytest.raises(ValueError, match=next(iter(wrong))):
                Mixed.parse(wrong)


@pytest.mark.parametrize("more", [{}, {"foreign": 1}, {"top": 2}], ids=["alone", "with another's", "with its own"])
def test_zeros_of_either_sign_are_told_apart(more: dict[str, Any]) -> None:
    class Signed(lpkit.Params, prefix="signed_"):
        value: float
        top: int = 1

    given = {key if key == "foreign" else f"signed_{key}": value for key, value in more.items()}
    for _ in range(2):
        for zero in (0.0, -0.0, 0):
            found = Signed.parse({"signed_value": zero, **given})
            assert found is not None and math.copysign(1.0, found.value) == math.copysign(1.0, zero)


def test_the_same_numbers_are_validated_once() -> None:
    checked = []

    class Counted(lpkit.Params):
        size: int

        def check_together(self) -> None:
            checked.append(self.size)

    first = [Counted.parse({"size": size}) for size in range(300)]
    assert Counted.parse({"size": 299}) is first[299]
    assert Counted.parse({"size": 299, "other": []}) is first[299]
    assert checked == list(range(300))


def test_equal_lists_are_validated_once_unless_a_processor_could_change_them() -> None:
    class Counted(lpkit.Params):
        fixed: tuple[int, ...] = ()
        open: list[int] | None = None

    first = Counted.parse({"fixed": [1, 2]})
    assert Counted.parse({"fixed": [1, 2], "other": []}) is first
    assert Counted.parse({"fixed": [2, 1]}) == Counted(fixed=(2, 1))
    one, two = (Counted.parse({"open": [1, 2]}) for _ in range(2))
    assert one is not None and two is not None
    assert one == two
    assert one.open is not two.open


def test_long_values_are_not_remembered() -> None:
    class Ids(lpkit.Params):
        ids: tuple[int, ...]

    found = [Ids.parse({"ids": [0] * 10_000}) for _ in range(2)]
    assert found[0] == found[1]
    assert found[0] is not found[1]


def test_equal_lists_of_other_types_are_told_apart_however_often_they_come() -> None:
    class Mixed(lpkit.Params):
        flags: tuple[bool, ...] = ()
        counts: tuple[int, ...] = ()
        zeros: tuple[float, ...] = ()

    for _ in range(2):
        assert Mixed.parse({"flags": [1, True]}) == Mixed(flags=(True, True))
        assert Mixed.parse({"counts": (1, 0)}) == Mixed(counts=(1, 0))
        for wrong in ({"counts": [True]}, {"counts": [1.0]}, {"flags": [1.0]}, {"zeros": [True]}):
            with pytest.raises(ValueError, match=next(iter(wrong))):
                Mixed.parse(wrong)
        signs = [Mixed.parse({"zeros": [zero]}) for zero in (0.0, -0.0)]
        assert [math.copysign(1.0, found.zeros[0]) for found in signs if found] == [1.0, -1.0]


def test_what_other_plugins_are_told_changes_nothing_about_equal_numbers() -> None:
    class Own(lpkit.Params, prefix="own_"):
        size: int

    for other in (1, True, 1.0, "text", None, [1]):
        for _ in range(2):
            assert Own.parse({"own_size": 1, "other": other}) == Own(size=1)
            assert Own.parse({"other": other}) is None
            with pytest.raises(ValueError, match="own_size"):
                Own.parse({"own_size": True, "other": other})
            with pytest.raises(ValueError, match="own_sise"):
                Own.parse({"own_size": 1, "own_sise": other})


def test_a_subclass_does_not_take_over_what_its_base_remembers() -> None:
    class Base(lpkit.Params):
        size: int

    class Narrow(Base):
        size: int = lpkit.Field(le=5)

    assert Base.parse({"size": 9}) == Base(size=9)
    with pytest.raises(ValueError, match="size"):
        Narrow.parse({"size": 9})


@pytest.mark.parametrize(
    ("given", "refusal"),
    [
        ({"count": 2**31 - 1, "share": 255, "some": [255] * 4}, ""),
        ({"count": 2**31}, "my_count: 2147483648 does not fit"),
        ({"share": -1}, "my_share: -1 does not fit"),
        ({"weight": 2147483648.0}, "my_weight: 2147483648.0 does not fit"),
        ({"some": [1, 256]}, "my_some: 256 does not fit"),
        ({"some": [1] * 5}, "my_some: should have at most 4 items, not 5"),
    ],
)
def test_what_the_column_of_a_parameter_does_not_hold_is_refused(given: dict[str, Any], refusal: str) -> None:
    class Held(lpkit.LogitsProcessor):
        class Params(lpkit.Params, prefix="my_"):
            count: int = 0
            share: int = 0
            weight: float = 0.0
            some: list[int] = []

        count, weight = lpkit.column(torch.int32), lpkit.column(torch.int32)
        share, some = lpkit.column(torch.uint8), lpkit.ragged(torch.uint8, limit=4)

        def process(self, logits: torch.Tensor, rows: lpkit.Rows) -> torch.Tensor:
            return logits

    class Chosen(Held):
        def admit(self, request: lpkit.Request) -> bool:
            return True  # it writes what it likes

    params = SamplingParams(extra_args={f"my_{key}": value for key, value in given.items()})
    Chosen.validate_params(params)
    with pytest.raises(ValueError, match=refusal) if refusal else nullcontext():
        Held.validate_params(params)
