"""Every check gives on a GPU the verdict that it gives on a CPU."""

from __future__ import annotations

import pytest
import zoo
from device_under_test import DEVICE, all_or, in_a_child

pytestmark = pytest.mark.gpu

# A second process takes longer than all the rest; a process of its own shows which import made a GPU's context.
LEFT_OUT = ("LP604", "LP002")


def verdicts(identity: str, device: str, select: tuple[str, ...] = ()) -> dict[str, str]:
    results = zoo.run_all(zoo.specimen(identity), select=select, ignore=LEFT_OUT, device=device)
    return {item.label: item.status for item in results}


def on_both(specimen: zoo.Specimen, select: tuple[str, ...] = ()) -> tuple[dict[str, str], dict[str, str]]:
    return in_a_child(verdicts, specimen.id, DEVICE.type, select), verdicts(specimen.id, "cpu", select)


@pytest.mark.parametrize("specimen", all_or(zoo.CORRECT, 3, 16), ids=lambda item: item.id)
def test_no_check_fails_a_correct_processor_on_the_device(specimen: zoo.Specimen) -> None:
    found, expected = on_both(specimen)
    assert not {label for label, status in found.items() if status in ("failed", "blocked", "error")}
    assert found == expected


DEFECTS = [defect for defect in zoo.DEFECTS if defect.code not in LEFT_OUT and defect.style != "packaging"]


@pytest.mark.parametrize("defect", all_or(DEFECTS, 10, 64), ids=lambda item: f"{item.code}-{item.id}")
def test_the_named_check_catches_the_defect_on_the_device(defect: zoo.Defect) -> None:
    found, expected = on_both(defect, (defect.code,))
    named = {label for label in expected if label.startswith(defect.code)}
    assert {label: found[label] for label in named} == {label: expected[label] for label in named}
