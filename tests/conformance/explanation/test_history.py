"""Histories of the state at fault: who wrote it, and why it is wrong."""

from __future__ import annotations

from planted import finding_of

# Most reasons are held with the zoo's specimens: these are of further evidence.


def test_state_that_the_engine_changes_is_not_said_to_be_as_it_was_at_the_add() -> None:
    assert "nothing has since" not in finding_of("v1-ParksOne", "LP504").cause


def test_the_last_changes_of_the_request_s_own_entry_are_listed_in_order() -> None:
    finding = finding_of("v1-MovesTheObject", "LP204")
    assert [text.partition(": ")[0] for text in finding.written] == ["step 1", "step 2", "step 3"]
    assert finding.written[0].endswith("sets self.rows[1] to [9, 1.95]")
    assert finding.written[-1].endswith("sets self.rows[0][1] to 0")


def test_a_line_of_another_file_is_listed_with_its_file() -> None:
    finding = finding_of("v1-TrimsBeforeItMoves", "LP204")
    assert finding.written[0].startswith("step 1: v1.py:")
    assert finding.written[1].startswith("step 2: line ")


def test_a_single_line_that_is_blamed_is_not_listed_again() -> None:
    assert not finding_of("portable-LastAdmitted", "LP201").written
