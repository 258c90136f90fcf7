"""Edits of the token that a request names or has: it alone, and in a large vocabulary as in a small one.

Small ids, which any type holds, show the plugin's action on a token. If it edits the logit of exactly that token, it
must do so for large ids, too, and edits no token that the request does not have. The token may be named by an argument
or be part of the history.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from lpkit.runtime import Request

from lpkit_conformance.activity.stand import stepped
from lpkit_conformance.explanation import advice
from lpkit_conformance.explanation.findings import at_fault
from lpkit_conformance.hosts import PluginError, drive
from lpkit_conformance.instruments.edits import NoteHolders
from lpkit_conformance.results import Failed
from lpkit_conformance.settings.cases import make_params
from lpkit_conformance.subject.memo import fact
from lpkit_conformance.subject.subject import Subject

SMALL = (20, 21, 50, 51, 90, 91, 110, 111)
"""Pairs of neighbours."""

OTHER = 60
"""Takes the place of a token that fills up positions."""

LARGE = ((301, 2_049, 33_001), (33_003, 66_001))
"""Beyond what bfloat16 (256), float16 (2,048), int16 and uint16 hold exactly; the last is infinite in float16, so that
an index made of it may raise, and comes last."""

MOST_ARGUMENTS = 6


@dataclass(frozen=True)
class TokenSource:
    """The argument or the part of a request that holds a token whose logit the plugin may edit.

    Attributes:
        name: as a report shows it.
        key, listed: of the argument that names the token, and True if the token is the first item of a list.
    """

    name: str
    key: str = ""
    listed: bool = False

    def request(self, subject: Subject, token: int) -> Request:
        """A request with the token in this place, the same as others in all else."""
        prompt, outputs = subject.model.prompt("ids", 5, 0), subject.model.emitted("ids", 0, 3)
        fields = copy.deepcopy(subject.setup.case.fields)
        if self.key:
            value = fields["extra_args"][self.key]
            fields["extra_args"][self.key] = [token, *value[1:]] if self.listed else token
        elif self is PROMPT:
            prompt[1:1] = [token]
        else:
            outputs[-1:] = [token]
        return Request(
            f"{self.name} {token}", subject.completed(make_params(fields)), prompt, 10**6, output_token_ids=outputs
        )


PROMPT, OUTPUT = TokenSource("in the prompt"), TokenSource("as the last output")


@fact
def small_edits(subject: Subject) -> dict[tuple[TokenSource, int], torch.Tensor]:
    """Return the edited logits for each place and small token; empty if the plugin raises, which other checks tell."""
    try:
        return _edited(subject, [(place, token) for place in _places(subject) for token in SMALL])
    except PluginError:
        return {}


def refuse_filler(subject: Subject) -> None:
    """Raise Failed if padding makes the plugin edit a token.

    The plugin writes this token's id into the positions of the prompt, or of the output, that do not count.
    """
    edits, present, vocab_size = small_edits(subject), SMALL[0], subject.setup.vocab_size
    for place in (OUTPUT, PROMPT):
        if not _is_named(edits, place):
            continue
        common = torch.stack([edits[place, token] for token in SMALL if (place, token) in edits]).all(0)
        request = place.request(subject, present)
        held = [*(request.prompt_token_ids or ()), *request.output_token_ids]
        common[[*held, *(token for case in subject.cases for token in subject.model.named(case))]] = False
        if int(common.sum()) != 1:  # no token, or a rule of many
            continue
        token, flat = int(common.to(torch.int8).argmax()), torch.zeros(1, vocab_size, device=common.device)
        rows = []
        for instead in (None, OTHER):
            with subject.as_imported(), NoteHolders(present, (token, token - vocab_size), instead) as notes:
                rows.append(_served(subject, [request], flat)[1][0])
            name, line, count = notes.holder
        row, other = rows
        # A rule of this very token has the id once, or goes on when another id stands in these positions.
        if count < 2 or row[token].sign() != row[present].sign() or other[token] or other[OTHER] != row[token]:
            continue
        raise Failed(
            f"token {token} is edited as if the request had it {place.name}",
            {"prompt": str(request.prompt_token_ids), "output": str(request.output_token_ids)},
            f"token {token} is left alone, as the request does not have it",
            f"it is edited as token {present} is",
            cause=advice.cause("filler", "LP115").format(name=name, token=token),
            fix=advice.fix("filler", "LP115"),
            location=line,
            state=name,
            advice=False,
        )


def compare_ids(usual: Subject, large: Subject) -> None:
    """Compare the edits of tokens in an engine of the usual vocabulary and in an engine of a large vocabulary.

    Raises:
        Failed: if another token's logit is edited there.
        PluginError: if the plugin raises there.
    """
    edits = small_edits(usual)
    named = [place for place in _places(usual) if _is_named(edits, place)]
    if not named:
        return
    for tokens in LARGE:
        edited = _edited(large, [(place, token) for place in named for token in tokens])
        for (place, token), row in edited.items():
            others = [other for key, other in edited.items() if key[0] is place and key[1] != token]
            if others and not row[token]:
                # What a request generates is not known when it comes.
                line = at_fault(large, "apply") if place is OUTPUT else ""
                _refuse_another(place, token, row & ~torch.stack(others).any(0), line)


def _refuse_another(place: TokenSource, token: int, instead: torch.Tensor, line: str) -> None:
    """Raise Failed if logits are edited ``instead`` of the token's; the list is empty if the plugin leaves its id
    alone."""
    if bool(instead.any()):
        another = int(instead.nonzero()[0])
        raise Failed(
            f"with token {token} {place.name}, the logit of token {another} is edited instead",
            {"engine": f"a vocabulary of {instead.shape[0]:,} tokens", "token id": str(token)},
            f"an edit of token {token}, as with tokens {', '.join(map(str, SMALL[::2]))}",
            f"an edit of token {another}",
            fix=advice.fix("ids", "LP221"),
            location=line,
        )


def _places(subject: Subject) -> Iterator[TokenSource]:
    yield from (PROMPT, OUTPUT)
    arguments = subject.setup.case.fields.get("extra_args") or {}
    for key, value in [*arguments.items()][:MOST_ARGUMENTS]:
        listed = isinstance(value, list | tuple) and bool(value)
        if type(value[0] if listed else value) is int:
            yield TokenSource(f"in `{key}`", key, listed)


def _is_named(edited: dict[tuple[TokenSource, int], torch.Tensor], place: TokenSource) -> bool:
    """Return True if the edits for two neighbours differ in the two tokens and nowhere else."""
    pairs = zip(SMALL[::2], SMALL[1::2], strict=True)
    return all(
        (place, mine) in edited
        and (place, its) in edited
        and (edited[place, mine] & ~edited[place, its]).nonzero().flatten().tolist() == [mine]
        for pair in pairs
        for mine, its in (pair, pair[::-1])
    )


def _edited(subject: Subject, asked: Sequence[tuple[TokenSource, int]]) -> dict[tuple[TokenSource, int], torch.Tensor]:
    """By place and token, which logits are edited: all rows have the same. Without requests that the plugin refuses."""
    requests = {key: key[0].request(subject, key[1]) for key in asked}
    requests = {key: request for key, request in requests.items() if subject.plugin.accepts(request.params)}
    if not requests:
        return {}
    raw = subject.model.rows([("ids", 8)]).repeat(len(requests), 1)
    with subject.as_imported():
        before, after = _served(subject, [*requests.values()], raw)
    return dict(zip(requests, (before != after).unbind(), strict=True))


def _served(subject: Subject, requests: Sequence[Request], raw: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Serve requests in one batch for one step; return the rows before and after."""
    driver = drive(subject, len(requests))
    driver.begin(entering=requests)
    return stepped(subject, driver, requests, raw)
