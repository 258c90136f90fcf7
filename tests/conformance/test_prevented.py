"""Statements of check pages about lpkit's base classes hold for the zoo's processors on them."""

from __future__ import annotations

import zoo
from lpkit import AdapterLogitsProcessor, LogitsProcessor
from lpkit_conformance.checks.catalogue import by_code


def on_the_base_classes(specimen: zoo.Specimen) -> bool:
    return isinstance(specimen.target, type) and issubclass(specimen.target, LogitsProcessor | AdapterLogitsProcessor)


def test_no_planted_defect_is_one_that_the_base_classes_are_said_to_prevent() -> None:
    planted = {defect.code: defect.name for defect in zoo.DEFECTS if on_the_base_classes(defect)}
    assert len(planted) > 20
    assert not [code for code in planted if by_code()[code].prevented]
