"""Processors that write down all their calls, and the same requests once more through our engines.

The scheduler's decisions and the model's logits are taken from the real engine. Imported in its process only.
"""

from __future__ import annotations

from typing import Any

import torch
from lpkit import v1, v2
from lpkit.runtime import Engine, LogitsSource, Request, V1AsyncEngine, V1Engine, V2Engine

EVENTS: list[Any] = []


class V1Log(v1.LogitsProcessor):
    """Writes down updates, and at each ``apply`` what stands in the lists it was given. Changes every other logit."""

    invariant = False

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self.lists: dict[int, list[int]] = {}

    def is_argmax_invariant(self) -> bool:
        return self.invariant

    def update_state(self, batch_update: v1.BatchUpdate | None) -> None:
        event = None if batch_update is None else self.follow(batch_update)
        EVENTS.append((type(self).__name__, "update", event, self.outputs()))

    def follow(self, update: v1.BatchUpdate) -> Any:
        lists = self.lists
        for row in update.removed:
            lists.pop(row, None)
        added = []
        for row, params, prompt, outputs in update.added:
            lists[row] = outputs
            added.append((row, params.max_tokens, tuple(prompt or ()), tuple(outputs)))
        for source, target, kind in update.moved:
            if kind.name == "SWAP":
                lists[source], lists[target] = lists[target], lists[source]
            else:
                lists[target] = lists.pop(source)
        moved = [(source, target, kind.name) for source, target, kind in update.moved]
        return update.batch_size, list(update.removed), added, moved

    def outputs(self) -> list[tuple[int, ...]]:
        return [tuple(self.lists[row]) for row in sorted(self.lists)]

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        EVENTS.append((type(self).__name__, "apply", tuple(logits.shape), str(logits.dtype), self.outputs()))
        logits[:, ::2] *= 0.9
        return logits


class V1LogInvariant(V1Log):
    invariant = True


class V2Log(v2.LogitsProcessor):
    """Writes down every call, its context, and the history that the buffers hold for each row's request."""

    def __init__(self, vllm_config: Any, req_states: v2.LogitsProcRequestState) -> None:
        self.states = req_states

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        lengths = self.states.prompt_len.np[req_idx], self.states.prefill_len.np[req_idx]
        EVENTS.append(("add", req_idx, sampling_params.max_tokens, *map(int, lengths)))
        return sampling_params.extra_args is None

    def apply_staged_writes(self) -> None:
        EVENTS.append(("flush",))

    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        states = self.states
        # The width of these differs between releases, and from ours; test_engine_facts.py has it.
        found: dict[str, Any] = {name: getattr(ctx, name).tolist() for name in ("expanded_idx_mapping", "idx_mapping")}
        for name in ("expanded_local_pos", "input_ids", "pos"):
            found[name] = (str(getattr(ctx, name).dtype), getattr(ctx, name).tolist())
        for name in ("idx_mapping_np", "seq_lens_upper_bound_np"):
            found[name] = (str(getattr(ctx, name).dtype), getattr(ctx, name).tolist())
        histories = []
        for slot in ctx.idx_mapping_np.tolist():
            total = int(states.total_len.gpu[slot])
            lengths = int(states.prompt_len.gpu[slot]), int(states.prefill_len.gpu[slot]), total
            histories.append((*lengths, tuple(states.all_token_ids.gpu[slot, :total].tolist())))
        EVENTS.append(("apply", tuple(logits.shape), str(logits.dtype), found, histories))
        logits[:, ::2] *= 0.9
        return logits


class Program:
    """Records a real scheduler's messages to its model runner, and the model's logits, step by step."""

    def __init__(self, engine: Any) -> None:
        self.steps: list[dict[str, Any]] = []
        runner = engine.model_runner
        execute, compute = runner.execute_model, runner.model.compute_logits

        def drafts(name: str, count: int) -> list[int]:
            # The scheduler knows their number; they themselves stay on the device.
            states = runner.req_states
            ids: list[int] = states.draft_tokens[states.req_id_to_index[name], :count].tolist()
            return ids

        def execute_model(scheduled: Any, *args: Any, **kwargs: Any) -> Any:
            new, wanted = scheduled.scheduled_new_reqs, scheduled.scheduled_spec_decode_tokens
            self.steps.append(
                {
                    "new": [(r.req_id, list(r.prompt_token_ids), r.sampling_params) for r in new],
                    "plan": dict(scheduled.num_scheduled_tokens),
                    "finished": sorted(scheduled.finished_req_ids),
                    "preempted": sorted(scheduled.preempted_req_ids or ()),
                    "drafts": {name: drafts(name, len(ids)) for name, ids in wanted.items()},
                    "raw": None,
                    "from": len(EVENTS),
                }
            )
            return execute(scheduled, *args, **kwargs)

        def compute_logits(*args: Any, **kwargs: Any) -> Any:
            logits = compute(*args, **kwargs)
            self.steps[-1]["raw"] = logits.clone()
            return logits

        runner.execute_model, runner.model.compute_logits = execute_model, compute_logits


class Raw(LogitsSource):
    """The real model's logits of the step that is replayed."""

    step: torch.Tensor | None = None

    def rows(self, keys: Any) -> torch.Tensor:
        assert self.step is not None and len(self.step) == len(keys), "another number of rows"
        return self.step.clone()


def differential(engine: Any, asks: Any, explicit: bool = True) -> dict[str, Any]:
    """Run ``asks`` on the engine, and again on ours: the events of both by step, and the tokens of both."""
    config = engine.llm.llm_engine.vllm_config
    settings = engine.settings
    options = {"max_num_seqs": settings.max_num_seqs, "max_model_len": settings.max_model_len, "device": "cpu"}
    drafts = config.speculative_config.num_speculative_tokens if config.speculative_config else 0
    EVENTS.clear()
    program = Program(engine)
    answers = engine.generate(asks)
    theirs = _by_step(program.steps)
    EVENTS.clear()
    source = Raw(settings.vocab_size)
    ours: Engine
    if settings.runner == "v2":
        asynchronous = config.scheduler_config.async_scheduling
        ours = V2Engine([V2Log], source, num_speculative_tokens=drafts, async_scheduling=asynchronous, **options)
    elif config.scheduler_config.async_scheduling:
        ours = V1AsyncEngine([V1Log, V1LogInvariant], source, explicit=explicit, **options)
    else:
        ours = V1Engine([V1Log, V1LogInvariant], source, **options)
    tokens = _replay(ours, source, program.steps, {name: answer.token_ids for name, answer in answers.items()})
    return {
        "events": (theirs, _by_step(program.steps)),
        "tokens": ({name: answer.token_ids for name, answer in answers.items()}, tokens),
        "errors": [answer.error for answer in answers.values()],
        "reasons": {name: answer.finish_reason for name, answer in answers.items()},
        "greedy": {ask.request_id: ask.params["temperature"] == 0 for ask in asks},
        "steps": [
            {key: step[key] for key in ("plan", "finished", "preempted", "drafts", "kept")} for step in program.steps
        ],
    }


def _by_step(steps: list[dict[str, Any]]) -> list[list[Any]]:
    ends = [step["from"] for step in steps[1:]] + [len(EVENTS)]
    return [EVENTS[step["from"] : end] for step, end in zip(steps, ends, strict=True)]


def _replay(
    ours: Engine, source: Raw, steps: list[dict[str, Any]], answers: dict[str, list[int]]
) -> dict[str, list[int]]:
    """The tokens of every request; only those that were drawn at random are taken from ``answers``."""
    outputs: dict[str, list[int]] = {}
    for step in steps:
        for name in step["finished"]:
            if name in ours.requests:
                outputs[name] = ours.finish(name).output_token_ids
        for name in step["preempted"]:
            ours.preempt(name)
        for name, prompt, params in step["new"]:
            if name not in ours.requests:
                ours.add(Request(name, params, prompt))
        for name in step["plan"]:
            if name not in ours._active:
                ours.resume(name)
        force = {}
        for name in step["plan"]:
            request = ours.requests[name]
            rest = answers[name][len(request.output_token_ids) :]
            if rest and request.params.temperature > 0:
                force[name] = rest[0]
        step["from"], source.step = len(EVENTS), step["raw"]
        plan = {name: count - len(step["drafts"].get(name, ())) for name, count in step["plan"].items()}
        result = ours.step(plan, drafts=step["drafts"], force=force)
        step["kept"] = sum(len(ids) - 1 for ids in result.tokens.values())
    assert not ours.requests, "the engine has reported every end"
    return outputs
