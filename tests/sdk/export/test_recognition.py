"""Sequences without a name are told apart by their tokens."""

from __future__ import annotations

import random

from lpkit.export.recognition import Recognizer
from lpkit.sampling_params import SamplingParams

PARAMS = SamplingParams()


def shown(row: object) -> tuple[list[int], list[int]]:
    return list(row.prompt_ids), list(row.output_ids)  # type: ignore[attr-defined]


def test_the_next_turn_of_a_conversation_is_another_prompt() -> None:
    sequences = Recognizer(PARAMS)
    for tokens in ([1], [1, 2], [1, 2, 3]):
        sequences.row(tokens)
    assert shown(sequences.row([1, 2, 3, 8, 9])) == ([1, 2, 3, 8, 9], [])


def test_the_same_prompt_again_begins_anew() -> None:
    sequences = Recognizer(PARAMS)
    first = sequences.row([1, 2])
    sequences.row([1, 2, 3])
    again = sequences.row([1, 2])
    assert again is not first
    assert shown(again) == ([1, 2], [])
    assert shown(sequences.row([1, 2, 4])) == ([1, 2], [4])


def test_rejected_drafts_leave_the_prompt_what_it_was() -> None:
    """The calls of a speculative step: three drafts, then the target's four rows, of which one draft was right."""
    sequences = Recognizer(PARAMS)
    for tokens in ([1], [1, 5], [1, 5, 6], [1], [1, 5], [1, 5, 7], [1, 5, 7, 8]):
        assert shown(sequences.row(tokens)) == ([1], tokens[1:])
    for tokens in ([1, 5, 7], [1, 5, 7, 9], [1, 5, 7], [1, 5, 7, 9], [1, 5, 7, 9, 2]):
        assert shown(sequences.row(tokens)) == ([1], tokens[1:])


def test_sequences_that_are_served_in_turns_keep_their_rows() -> None:
    draw = random.Random(0)
    sequences = Recognizer(PARAMS)
    prompts = [[draw.randrange(50) for _ in range(draw.randint(1, 6))] for _ in range(20)]
    running = [(prompt, list(prompt)) for prompt in prompts]
    rows = [sequences.row(tokens) for _, tokens in running]
    for _ in range(10):
        for index, (prompt, tokens) in enumerate(running):
            tokens.append(draw.randrange(50))
            row = sequences.row(tokens)
            assert row is rows[index]
            assert shown(row) == (prompt, tokens[len(prompt) :])


def test_what_is_remembered_is_bounded() -> None:
    sequences = Recognizer(PARAMS)
    for i in range(1000):
        sequences.row([i, i, i])
    assert len(sequences._remembered) == 256
