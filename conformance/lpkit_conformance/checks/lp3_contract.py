"""LP3: edits of the logits that ``apply`` may make."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from lpkit_conformance.checks.base import EVERY_METHOD, Check
from lpkit_conformance.checks.ladder import everyday, host_after
from lpkit_conformance.checks.lazily import (
    Subject,
    acting,
    calls,
    compare,
    dropped,
    edits,
    findings,
    odd_arguments,
    parts,
    solo,
    spoilt,
    stand,
    state,
    torch,
    trails,
    verify,
)
from lpkit_conformance.checks.lp1_odd import forced_token
from lpkit_conformance.checks.lp3_purity import ContractCheck
from lpkit_conformance.explanation import advice
from lpkit_conformance.programs.generate import Arrive, Step, program
from lpkit_conformance.results import Failed, Finding, NeverActive, Skipped
from lpkit_conformance.vllm_api.runners import V2


class LP301(Check):
    """``apply`` returns the batch's logits.

    It returns a tensor with the shape, dtype and device of its input: the same tensor, or a new tensor. Each row has
    memory of its own, in order (a stride of 1): the sampler's kernels read a transposed or expanded tensor wrongly.
    If no given case changes a logit, no line computes new logits that nothing reads.

    Why: None, half precision or fewer rows fail the step and stop the engine for everyone. A copy that is changed and
    then dropped has no effect.

    Fix: end ``apply`` with ``return logits``.
    """

    code, name, requires, own_exceptions = "LP301", "returns-logits", ("LP101", "LP109"), ("apply",)
    quick = "first"

    def run(self, subject: Subject) -> str | None:
        host_after(subject, everyday().ops)  # early returns are easily forgotten
        activity = acting.activity(subject)
        if not activity.acts and not activity.raises:
            standing = stand.stand_after(subject, stand.arrivals(subject.variants))
            with dropped.NoteDropped(standing.logits) as notes:
                standing.again(standing.logits)
            others = (subject.having(case=case) for case in subject.setup.others)
            if notes.line and not any(acting.activity(other).acts for other in others):
                summary, expected = "no case changes a logit, though `apply` computes new ones", "of the cases"
                raise _dropped(summary, expected, notes.holder, notes.line)
        return None


def _dropped(summary: str, requests: str, holder: str, line: str) -> Failed:
    """Return the failure for numbers that nothing reads; ``requests``: the requests that they belong to."""
    made = "held" if holder.isidentifier() else "made"
    return Failed(
        summary,
        {"method": "apply"},
        f"other logits for a request {requests}",
        "the same logits in all runs",
        cause=advice.cause(made, LP301.code).format(name=holder),
        fix=advice.fix(made, LP301.code).format(name=holder),
        location=line,
    )


class LP302(Check):
    """Rows of requests that do not use the plugin do not change by a bit.

    This also holds when other rows of the batch are edited, and on V2 for requests that ``add_request`` declined.

    Why: a multiplication by 1, an added 0 or a round trip through softmax changes other users' results.

    Fix: index the rows of your own requests; do not compute over the whole batch with neutral values. On V2, row ``n``
    is of the slot ``ctx.expanded_idx_mapping[n]``.
    """

    code, name, needs_action = "LP302", "untouched-rows", True
    quick = "first"
    prevented = "they pass rows of requests that use the processor, and no others."
    requires = ("LP101", "LP301", "LP108")

    def run(self, subject: Subject) -> str | None:
        arrivals = [Arrive("a", 0), Arrive("b", None), Arrive("c", None), Arrive("d", 1), Arrive("e", None)]
        played = program("neighbours", arrivals, Step(4), max_num_seqs=subject.setup.max_num_seqs)
        runs = solo.solo_runs(subject)
        host = parts.default_host(subject, subject.setup.max_num_seqs)
        seen = list(host.run(played.ops))
        if not (runs.prepare(host.pool.requests) or acting.activity(subject).acts):
            raise NeverActive
        judged = 0
        for observation in seen:
            for row, item in enumerate(observation.rows):
                active = host.pool.requests[item.request]
                alone = runs.expected(item.request, item.position)
                changed = not torch.equal(observation.before[row], observation.after[row])
                if active.variant is not None and changed and host.driver.declines(item.request):
                    raise self._declined(subject, item.request, {"row": str(row)})
                if active.variant is not None or item.discarded or alone is None:
                    continue
                before, after = observation.before[row], observation.after[row]
                if not torch.equal(alone, before):
                    continue  # the plugin acts on every request; that is its right
                judged += 1
                if changed:
                    strangers = solo.SoloRuns(subject, strangers=True)
                    strangers.prepare(host.pool.requests)
                    stray = compare.compare(observation, strangers)
                    assert stray is not None
                    finding = verify.explained(subject, played, stray, solo=strangers)
                    summary = f"the row of {finding.where['request']}, which does not use the plugin, was changed"
                    raise Failed(replace(finding, summary=summary, fix=finding.fix if finding.state else ""))
        for served in odd_arguments.odd_served(subject) if subject.setup.host == V2 else ():
            # Else the slot may hold what an earlier request left, or others have now, which LP202 and LP201 judge.
            if served.edited and odd_arguments.edited_for_itself(subject, served):
                raise self._declined(subject, f"a request with {served.argument}", {"argument": served.argument})
        if not judged:
            raise Skipped("the plugin acts on every request")
        for standing in acting.activity(subject).standings():
            for row, stance in enumerate(standing.stances):
                # As above: what the plugin does to a request alone, it may do to it in the batch.
                if stance.variant is None and not stand.stand_at(subject, [stance]).acts:
                    judged += 1
                    before, after = standing.logits[row], standing.after[row]
                    if not torch.equal(before, after):
                        token = int((before != after).to(torch.int8).argmax())
                        raise Failed(
                            "the row of a request, which does not use the plugin, was changed",
                            {"row": str(row), "token id": str(token)},
                            f"{float(before[token])!r}",
                            f"{float(after[token])!r}",
                            cause=advice.cause("stray"),
                        )
        return f"{judged} rows"

    def _declined(self, subject: Subject, request: str, where: dict[str, str]) -> Failed:
        return Failed(
            f"the row of {request} was changed, though add_request returned False for it",
            where,
            "the logits as they were",
            "other logits",
            cause=advice.cause("declined", self.code),
            fix=advice.fix("declined", self.code),
            location=findings.returning_line(subject.plugin.cls, "add_request"),
        )


class LP304(ContractCheck):
    """Logits need not be contiguous.

    With a padded vocabulary vLLM passes a view ``[:, :vocab]`` of a wider buffer.

    Why: ``view(-1)`` raises, and flat indices computed from ``vocab_size`` hit the wrong tokens.

    Fix: index rows and tokens separately; use ``reshape`` for reading only.
    """

    code, name = "LP304", "non-contiguous"
    requires, own_exceptions = ("LP101", "LP301", "LP303"), EVERY_METHOD

    def standings(self, subject: Subject) -> Iterator[stand.Standing]:
        """Also a batch of users alone: some of a batch's rows are gathered into a contiguous tensor first."""
        yield from super().standings(subject)
        if users := acting.activity(subject).stances:
            yield stand.stand_at(subject, users)

    def judge(self, subject: Subject, logits: torch.Tensor, again: stand.Apply) -> str | None:
        wide = logits.new_full((logits.shape[0], logits.shape[1] + 64), 3.0)
        view = wide[:, : logits.shape[1]]
        view.copy_(logits)
        expected = again(logits.clone()).clone()
        got = calls.checked(again(view), logits)
        unlike = compare.unequal(expected, got)
        if bool(unlike.any()):
            row = compare.first_row(unlike)
            with edits.NoteEdits(view, row) as notes:
                again(view)
            name = trails.changed_by(notes.wrote or notes.computed)
            name = "" if notes.values.get(name) is view else name  # the view itself
            cause = advice.cause("gaps", self.code).format(name=name) if name else ""
            summary, where = "a non-contiguous view gives different logits", {"row": str(row)}
            raise Failed(Finding(summary, where, "equal logits", "different logits", cause=cause, state=name))
        if not bool((wide[:, logits.shape[1] :] == 3.0).all()):
            fix = advice.fix("padding", self.code)
            raise Failed("apply wrote to the padding behind the vocabulary", {}, "untouched", "changed", fix=fix)
        return None


class LP305(ContractCheck):
    """Masked tokens stay masked.

    A token at ``-inf`` was forbidden by a grammar or another processor.

    Why: a finite value written over it lets the model leave the grammar: output that had to be valid JSON is
    not.

    A processor that leaves a row a single token, by masks or by a huge logit, has no choice: that is advice, as vLLM's
    own thinking budget does it, too.

    Fix: add to the logit instead of setting it, or write only where ``logits > -inf``.
    """

    code, name, requires = "LP305", "keeps-masks", ("LP101", "LP301", "LP108")
    quick = "first"

    def judge(self, subject: Subject, logits: torch.Tensor, again: stand.Apply) -> str | None:
        forced: Failed | None = None
        for masked in masks(subject, logits):
            result = again(logits.masked_fill(masked, -math.inf))
            revived, only = masked & (result > -math.inf), forced_token(result)
            for wrong, advised in ((revived & ~only, False), (revived & only, True)):
                if bool(wrong.any()):
                    row, token = (int(i) for i in wrong.nonzero()[0])
                    where = {"row": str(row), "token_id": str(token)}
                    summary = "a masked token was given a finite logit" + ", the only one of its row" * advised
                    free = logits.masked_fill(masked, -math.inf)
                    free[row, token] = free[row].amax()
                    key = "revived" if bool(again(free)[row, token] == result[row, token]) else "mapped"
                    again(logits.masked_fill(masked, -math.inf))  # the last that it gets shows the line
                    fix = advice.fix("forced" if advised else "mapped", self.code) if advised or key == "mapped" else ""
                    got = f"{float(result[row, token]):g}"
                    cause = advice.cause(key, self.code).format(value=got)
                    failed = Failed(summary, where, "-inf", got, cause=cause, fix=fix, advice=advised)
                    if not advised:
                        raise failed
                    forced = forced or failed
        if forced is not None:
            raise forced
        return None


MASKED = ("one-hot", "mostly masked")
"""Logits for which the fix of the check is right."""


class LP306(ContractCheck):
    """The result contains no NaN.

    This also holds for rows that are mostly masked, very large, very small or flat, and for any combination of the
    plugin's arguments.

    Why: one NaN makes the sampler's choice undefined for the row.

    Fix: watch for ``inf - inf`` and ``0 * inf``; use ``torch.where`` on the masked elements.
    """

    code, name = "LP306", "no-nan"
    requires = ("LP101", "LP301", "LP201")

    def standings(self, subject: Subject) -> Iterator[stand.Standing]:
        yield from super().standings(subject)
        # A request that leaves an argument out is NaN alone and in the batch alike: no comparison shows that.
        yield stand.stand_after(subject, [Arrive(f"v{i}", i) for i in subject.variants])

    def judge(self, subject: Subject, logits: torch.Tensor, again: stand.Apply) -> str | None:
        for label, rows in adversarial(logits).items():
            result = again(rows.clone())
            if bool(result.isnan().any()):
                row, token = (int(i) for i in result.isnan().nonzero()[0])
                where = {"row": str(row), "token_id": str(token)}
                with edits.NoteEdits(rows, row) as notes:
                    again(rows)
                fix = "" if label in MASKED else advice.fix(label, self.code)
                finding = Finding(f"NaN for {label} logits", where, "a number", "nan", fix=fix)
                raise Failed(spoilt.with_nan(finding, notes, label in MASKED))
        return None

    def explained(self, subject: Subject, finding: Finding) -> Finding:
        for standing in self.standings(subject):
            for parts_, name in state.leaves(state.State.of(standing.driver.processor, ())):
                value = parts_.get(name)
                if isinstance(value, torch.Tensor) and value.is_floating_point():
                    beyond = value[(value == math.inf) | value.isnan()]
                    if beyond.numel():
                        words = {"name": name, "dtype": str(value.dtype), "value": f"{beyond.flatten()[0].item():g}"}
                        cause, fix = (table("held", self.code).format(**words) for table in (advice.cause, advice.fix))
                        made = findings.making_line(subject.plugin.cls, name)
                        return replace(finding, cause=cause, fix=fix, state=name, location=made or finding.location)
        return finding


class LP307(ContractCheck):
    """At least one token can still be sampled.

    A row without masked tokens does not become all ``-inf``, even if its logits are tied, flat, huge or tiny. Neither
    does a row with masked tokens, if the grammar leaves a token that the plugin keeps without the grammar.

    Why: the sampler otherwise picks token 0, or nonsense, without an error.

    Fix: keep at least the best token; watch for NaN where tokens are masked (``0 * -inf``), which compares as False.
    """

    code, name = "LP307", "leaves-a-token"
    requires = ("LP101", "LP301", "LP201", "LP303", "LP306")

    def judge(self, subject: Subject, logits: torch.Tensor, again: stand.Apply) -> str | None:
        for label, rows in adversarial(logits).items():
            if not bool(rows.isfinite().all()):
                continue  # the one token left may be one that the plugin forbids
            empty = (again(rows.clone()) == -math.inf).all(1, keepdim=True)
            if bool(empty.any()):
                summary, row = f"every token of a row of {label} logits was masked", compare.first_row(empty)
                # A rule of tokens leaves none of other logits either; a threshold leaves some.
                key = "set" if bool((again(logits.flip(1))[row] == -math.inf).all()) else "threshold"
                with edits.NoteEdits(rows, row) as notes:
                    again(rows)  # the last that it gets shows the line
                finding = Finding(summary, {"row": str(row)}, "a finite logit", "all -inf")
                if notes.spoilt:
                    raise Failed(spoilt.compared(finding, notes))
                cause, fix = advice.cause(key, self.code), advice.fix(key, self.code)
                name, evidence = spoilt.emptied(notes, rows.shape[1])
                raise Failed(replace(finding, cause=f"{evidence}: {cause}" if name else cause, fix=fix, state=name))
        kept = again(logits.clone()) > -math.inf
        for masked in masks(subject, logits):
            left = (kept & ~masked).any(1, keepdim=True)
            emptied = left & ~(again(logits.masked_fill(masked, -math.inf)) > -math.inf).any(1, keepdim=True)
            if bool(emptied.any()):
                row = compare.first_row(emptied)
                raise Failed(
                    f"every token of a row was masked, of which {int(masked[row].sum())} were masked before",
                    {"row": str(row)},
                    "a finite logit: without these masks the plugin keeps a token that they leave",
                    "all -inf, or NaN",
                    fix=advice.fix("masked", self.code),
                )
        return None


ALIKE = 0.25
"""Difference of two edits, as a share, up to which a rule of the other tokens' numbers may make both."""

LEAST_EDIT = 1e-4
"""Difference that rounding may make."""

MOST_OTHERS = 0.25
"""Share of the edits that may differ: at a threshold, a few tokens fall on the other side."""


class LP310(ContractCheck):
    """A mask on an unlikely token does not switch the rule off.

    With its least likely token masked, a row that the plugin edits gets about the same edits elsewhere.

    Why: every row of a request with a grammar has masked tokens. A rule that returns early on ``-inf`` protects itself
    from NaN, and is off for all of these requests. A NaN that is compared with a threshold counts as below it, so all
    of these requests are treated alike.

    Fix: compute on the tokens that are not masked: ``torch.where(logits > -inf, edited, logits)``.
    """

    code, name = "LP310", "works-beside-masks"
    requires = ("LP101", "LP301", "LP303", "LP305", "LP306")

    def judge(self, subject: Subject, logits: torch.Tensor, again: stand.Apply) -> str | None:
        result = again(logits.clone())
        edited, forbidden = result != logits, result == -math.inf
        # A token that the rule masks itself, if it masks any.
        kept = forbidden.any(1, keepdim=True) & ~forbidden
        unlikely = logits.masked_fill(kept, math.inf).argmin(1, keepdim=True)
        masked = logits.scatter(1, unlikely, -math.inf)
        elsewhere = edited.scatter(1, unlikely, False)
        other = again(masked.clone())
        before, after = (result - logits).nan_to_num(0.0), (other - masked).nan_to_num(0.0)
        difference = (after - before).abs()
        unlike = elsewhere & (difference > ALIKE * before.abs() + LEAST_EDIT)
        # A mean of the other tokens moves by as much as one of them counts, however small the edit that it makes.
        spread = logits.amax(1, keepdim=True) - logits.amin(1, keepdim=True)
        unlike &= (after == 0) | (difference > spread / logits.shape[1])
        changed = unlike.sum(1, keepdim=True) > MOST_OTHERS * elsewhere.sum(1, keepdim=True)
        if bool(changed.any()):
            row = compare.first_row(changed)
            token, hidden = int(unlike[row].to(torch.int8).argmax()), int(unlikely[row])
            finding = Finding(
                f"with the unlikely token {hidden} masked, a row is not edited any more",
                {"row": str(row), "token id": str(hidden)},
                f"edits of other tokens, as without the mask ({int(elsewhere[row].sum())})",
                "none of these edits",
            )
            if bool(after[row][elsewhere[row]].any()):
                finding = Finding(
                    f"with the unlikely token {hidden} masked, the other tokens of the row get other edits",
                    {"row": str(row), "token id": str(token)},
                    f"about {float(result[row, token]):g}, as without the mask",
                    f"{float(other[row, token]):g}",
                )
            raise Failed(self._because(finding, again, logits, masked))
        return None

    def _because(self, finding: Finding, again: stand.Apply, logits: torch.Tensor, masked: torch.Tensor) -> Finding:
        """Return the finding with the line that makes NaN of the mask, or the condition that the mask decides."""
        with edits.NoteEdits(masked, int(finding.where["row"])) as notes, trails.trail(trails.lines) as here:
            again(masked.clone())
        if notes.spoilt:
            return replace(spoilt.with_nan(finding, notes, masked=True), location=notes.spoilt)
        with trails.trail(trails.lines) as there:
            again(logits.clone())
        condition = trails.branching(here, there)
        return replace(finding, location=condition, cause=advice.cause("way", self.code)) if condition else finding


class LP311(Check):
    """A changed copy is written back.

    Each copy of some logits that a line changes in place is read afterwards.

    Why: an index that is a list, a mask or a tensor makes a copy, also on ``lpkit.SparseLogits``. Its change has no
    effect: an argument is accepted and ignored, though the plugin acts.

    Fix: write the copy back: ``logits[ids] = values``.
    """

    code, name, requires = "LP311", "changed-copies", ("LP101", "LP301")

    def run(self, subject: Subject) -> str | None:
        standing = stand.stand_after(subject, stand.arrivals(subject.variants))
        with dropped.NoteUnwritten(standing.logits) as changes:
            standing.again(standing.logits)
        for holder, line in changes.changed.values():
            keys = " and ".join(f"`{key}`" for key in _without_effect(subject))
            without = f": without {keys} the row is the same here" if keys else ""
            summary = f"a copy of some logits is changed, and nothing reads it{without}"
            raise _dropped(summary, f"with {keys}" if keys else "of the case", holder, line)
        return None


def _without_effect(subject: Subject) -> list[str]:
    """Return the arguments of the case without which a request gets the same logits."""
    arguments = [case.fields.get("extra_args") or {} for case in subject.cases]
    less = [n for n in subject.with_less if arguments[n].items() <= arguments[0].items()]
    after = stand.stand_at(subject, [stand.Stance(n, "less", 3) for n in (0, *less)]).after
    same = [n for n, row in zip(less, after[1:], strict=True) if torch.equal(row, after[0])]
    return [key for n in same for key in arguments[0].keys() - arguments[n].keys()]


def masks(subject: Subject, logits: torch.Tensor) -> Iterator[torch.Tensor]:
    """Grammar-like masks ``[rows, vocab]``: a few, most, and the tokens that the case names."""
    generator = torch.Generator().manual_seed(subject.setup.seed)
    draw = torch.rand(logits.shape, generator=generator).to(logits.device)
    yield draw < 0.1
    yield draw < 0.95
    named = torch.zeros_like(logits, dtype=torch.bool)
    named[:, [token for case in subject.cases for token in subject.model.named(case)]] = True
    yield named


def adversarial(logits: torch.Tensor) -> dict[str, torch.Tensor]:
    """Rows that break careless arithmetic, by name."""
    first = logits.argmax(1, keepdim=True)
    one_hot = torch.full_like(logits, -math.inf).scatter(1, first, 1.0)
    ties = logits.clone()
    ties[:, : ties.shape[1] // 2] = logits.amax(1, keepdim=True)
    sparse = torch.where(logits > logits.mean(1, keepdim=True) + 2.5, logits, -math.inf).scatter(1, first, 5.0)
    return {
        "ordinary": logits,
        "tied": ties,
        "flat": torch.zeros_like(logits),
        "one-hot": one_hot,
        "mostly masked": sparse,
        "huge": logits * 1e30,
        "tiny": logits * 1e-30,
        "negative": logits - 1e4,
    }
