"""V1 processors that follow the batch and break another rule."""

from __future__ import annotations

import itertools
from typing import Any, ClassVar

import torch
from lpkit.v1 import BatchUpdate, process_dict_updates

from zoo.arguments import INF, number
from zoo.registry import defect
from zoo.v1_correct import Bias, ByHand, DenseMinP, V1Base
from zoo.v1_history_correct import LastToken

# -- construction and parameters -----------------------------------------------------------------------------


@defect("LP101", "divides by the number of other requests: an engine for one request does not start")
class OneSeat(Bias):
    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        self.share = 1 / (vllm_config.scheduler_config.max_num_seqs - 1)


@defect("LP221", "needs an end-of-sequence id, which a model need not have")
class NeedsEos(Bias):
    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        self.eos = int(vllm_config.model_config.hf_config.eos_token_id)


@defect("LP102", "refuses requests that carry arguments, but not its own")
class RefusesForeign(Bias):
    @classmethod
    def validate_params(cls, params: Any) -> None:
        if params.extra_args and "bias" not in params.extra_args:
            raise ValueError("bias is missing")
        cls.read(params)


@defect("LP102", "iterates over extra_args, which may be None", name="IteratesNone")
class IteratesNone(Bias):
    @classmethod
    def validate_params(cls, params: Any) -> None:
        for key in params.extra_args:
            if key == "bias":
                cls.read(params)


@defect("LP103", "compares before it looks at the type", case={"extra_args": {"bias": 2.5, "token": 7}})
class ComparesFirst(Bias):
    @classmethod
    def validate_params(cls, params: Any) -> None:
        args = params.extra_args or {}
        if "bias" in args and abs(args["bias"]) > 100:
            raise ValueError("bias is too large")
        cls.read(params)


@defect("LP103", "int() of infinity raises OverflowError, of everything else ValueError")
class IntOfInfinity(Bias):
    @classmethod
    def validate_params(cls, params: Any) -> None:
        bias = (params.extra_args or {}).get("bias")
        if isinstance(bias, float) and bias == bias:
            int(bias)
        cls.read(params)


@defect("LP104", "takes any integer for a token id; one outside the vocabulary ends the engine in apply")
class AnyToken(Bias):
    @classmethod
    def read(cls, params: Any) -> Any:
        args = params.extra_args or {}
        bias, where = number(params, "bias"), args.get("token")
        if where is None or bias is None:
            return None
        if type(where) is not int or where < 0:
            raise ValueError("token must be a token id")
        return where, bias


@defect("LP104", "refuses what is too large for 64 bits, one bit late", case={"extra_args": {"boost_seed": 12}})
class SixtyFourBits(V1Base):
    @classmethod
    def read(cls, params: Any) -> Any:
        value = (params.extra_args or {}).get("boost_seed")
        if value is not None and (type(value) is not int or not 0 <= value < 2**64):
            raise ValueError("boost_seed must be an unsigned 64-bit integer")
        return value

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if self.rows:
            seeds = torch.tensor(list(self.rows.values()), dtype=torch.int64)
            logits[torch.tensor(list(self.rows)), 3 + seeds % 12] += 4.0
        return logits


@defect("LP105", "pops its argument: gone when the request resumes")
class PopsArgument(Bias):
    def enter(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Any:
        state = self.read(params)
        if state is not None:
            params.extra_args.setdefault("seen", True)
        return state


@defect("LP105", "sorts the client's list in place", case={"extra_args": {"ids": [9, 4, 6], "bias": 2.0}})
class SortsInPlace(V1Base):
    @classmethod
    def read(cls, params: Any) -> Any:
        args = params.extra_args or {}
        ids, bias = args.get("ids"), number(params, "bias")
        if ids is None or bias is None:
            return None
        if not isinstance(ids, list) or not all(type(item) is int and 0 <= item < 512 for item in ids):
            raise ValueError("ids must be a list of token ids")
        ids.sort()
        return ids, bias

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (ids, bias) in self.rows.items():
            logits[row, torch.tensor(ids, dtype=torch.int64)] += bias
        return logits


@defect("LP106", "insists on a bool, which is 1 after its way through the server", case={"extra_args": {"mute": True}})
class InsistsOnBool(V1Base):
    @classmethod
    def read(cls, params: Any) -> Any:
        value = (params.extra_args or {}).get("mute")
        if value is not None and not isinstance(value, bool):
            raise ValueError("mute must be true or false")
        return value or None

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row in self.rows:
            logits[row, 5] = -INF
        return logits


@defect("LP106", "insists on a tuple", case={"extra_args": {"pair": (4, 9)}})
class InsistsOnTuple(V1Base):
    @classmethod
    def read(cls, params: Any) -> Any:
        value = (params.extra_args or {}).get("pair")
        if value is not None and not isinstance(value, tuple):
            raise ValueError("pair must be a pair")
        return value

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (first, _) in self.rows.items():
            logits[row, first] += 3.0
        return logits


@defect("LP105", "fills its default into the extra_args of every request")
class FillsDefaults(Bias):
    @classmethod
    def validate_params(cls, params: Any) -> None:
        cls.read(params)
        if params.extra_args is not None:
            params.extra_args.setdefault("token", 7)


@defect(
    "LP106",
    "`is True`: accepted after its way through the server, and without effect",
    case={"extra_args": {"mute": True}},
)
class IsTrue(V1Base):
    @classmethod
    def read(cls, params: Any) -> Any:
        value = (params.extra_args or {}).get("mute")
        if value not in (None, True, False):
            raise ValueError("mute must be true or false")
        return True if value is True else None

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row in self.rows:
            logits[row, 5] = -INF
        return logits


@defect("LP507", "takes the removed rows out of the update, one by one")
class PopsRemoved(ByHand):
    def removals(self, update: BatchUpdate) -> None:
        while update.removed:
            self.rows.pop(update.removed.pop(), None)  # type: ignore[attr-defined]


@defect("LP507", "sorts the additions of the update by row")
class SortsAdditions(ByHand):
    def additions(self, update: BatchUpdate) -> None:
        update.added.sort(key=lambda item: -item[0])  # type: ignore[attr-defined]
        super().additions(update)


@defect("LP108", "state in a class attribute")
class ClassState(Bias):
    shared: ClassVar[dict[int, Any]] = {}

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.shared.clear()
        self.rows = self.shared


@defect("LP108", "a new instance throws the packed tensors of the others away")
class SharedPack(Bias):
    packed: ClassVar[list[Any]] = []

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        if process_dict_updates(self.rows, batch_update, self.enter):
            self.packed[:] = list(self.rows.items())

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias) in self.packed if self.rows else ():
            if row < logits.shape[0]:
                logits[row, where] += bias
        return logits


@defect("LP109", "looks every row up, also those of requests without the plugin")
class LooksEveryRowUp(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row in range(logits.shape[0]) if self.rows else ():
            where, bias = self.rows[row]
            logits[row, where] += bias
        return logits


# -- the contract --------------------------------------------------------------------------------------------


@defect("LP301", "promotes to float64 once four requests are in the batch")
class Promotes(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        result = super().apply(logits)
        return result.double() if logits.shape[0] >= 4 and self.rows else result


@defect("LP301", "forgets to return the logits when it has nothing to do")
class ReturnsNothing(Bias):
    def apply(self, logits: torch.Tensor) -> Any:
        if self.rows:
            return super().apply(logits)
        return None


@defect("LP302", "computes over the whole batch with a neutral 0, through a softmax")
class NeutralValues(DenseMinP):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if not self.used:
            return logits
        floor = self.values[: logits.shape[0]].unsqueeze(1).to(logits.device)
        log_probs = torch.log_softmax(logits, -1)
        return log_probs.masked_fill_(log_probs < log_probs.amax(1, keepdim=True) + floor.log(), -INF)


@defect("LP302", "edits the slice from its first row to its last")
class Slices(V1Base):
    CASE = {"extra_args": {"bias": 1.5}}

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if self.rows:
            first, last = min(self.rows), max(self.rows)
            bias = torch.tensor([self.rows.get(row, 0.0) for row in range(first, last + 1)], device=logits.device)
            logits[first : last + 1] = logits[first : last + 1] * 0.1 / 0.1
            logits[first : last + 1, 5] += bias
        return logits


@defect("LP303", "lets its bias fade with every call")
class Fades(ByHand):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        result = super().apply(logits)
        self.rows = {row: (where, bias * 0.999) for row, (where, bias) in self.rows.items()}
        return result


@defect("LP303", "a moving average of the logits it saw")
class MovingAverage(Bias):
    mean: float = 0.0

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if self.rows:
            row = min(self.rows)
            self.mean = 0.9 * self.mean + 0.1 * float(logits[row, 5])
            logits[row, 5] += self.mean
        return super().apply(logits)


@defect("LP304", "edits a flattened copy when the logits are a view")
class Flattens(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        flat = logits.flatten()
        for row, (where, bias) in self.rows.items():
            flat[row * logits.shape[1] + where] += bias
        return logits


@defect("LP304", "view(-1)")
class Views(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias) in self.rows.items():
            logits.view(-1)[row * logits.shape[1] + where] += bias
        return logits


@defect("LP305", "goes through probabilities and back: the masked get log(1e-10)")
class ThroughProbabilities(V1Base):
    CASE = {"extra_args": {"bias": 1.5}}

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, power in self.rows.items():
            probs = torch.softmax(logits[row], -1)
            logits[row] = torch.log(probs + 1e-10) * (1 + abs(power) / 10)
        return logits


@defect("LP305", "sets the forced token's logit without looking what it was")
class Forces(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (where, bias) in self.rows.items():
            logits[row, where] = max(float(logits[row, where]), bias) + 1
        return logits


@defect("LP306", "p log p of a masked token", case={"extra_args": {"bias": 1.5}})
class EntropyOfMasked(V1Base):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, amount in self.rows.items():
            log_p = torch.log_softmax(logits[row], -1)
            logits[row, 5] -= amount * (log_p.exp() * log_p).sum()
        return logits


@defect("LP306", "subtracts the mean of the row: -inf when a token is masked", case={"extra_args": {"bias": 1.5}})
class Centers(V1Base):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, amount in self.rows.items():
            logits[row] = (logits[row] - logits[row].mean()) * (1 + abs(amount) / 100)
        return logits


@defect("LP307", "an epsilon cut-off that keeps no best token: flat rows lose everything")
class CutsEverything(V1Base):
    CASE = {"extra_args": {"epsilon": 0.003}}

    @classmethod
    def read(cls, params: Any) -> Any:
        return number(params, "epsilon", 0.0, 0.01)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, epsilon in self.rows.items():
            logits[row, torch.softmax(logits[row], -1) < epsilon] = -INF
        return logits


@defect("LP307", "a strict comparison with the maximum", case={"extra_args": {"sigma": 0.0}})
class StrictlyAbove(V1Base):
    @classmethod
    def read(cls, params: Any) -> Any:
        return number(params, "sigma", 0.0, 10.0)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, sigma in self.rows.items():
            floor = logits[row].max() - sigma * logits[row].std()
            logits[row, logits[row] <= floor] = -INF
        return logits


@defect("LP401", "claims argmax invariance; true of min-p, but not of the bonus for token 5")
class FalseClaim(DenseMinP):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        result = super().apply(logits)
        if self.used:
            close = (self.values[: logits.shape[0]].to(logits.device) > 0) & (result[:, 5] > result.amax(1) - 0.02)
            result[:, 5] += torch.where(close, 0.05, 0.0)
        return result


@defect("LP401", "claims argmax invariance; a penalty that spares only random rows' best token")
class FalseOnTies(DenseMinP):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if self.used:
            best = torch.topk(logits, 2)
            tied = (best.values[:, 0] == best.values[:, 1]) & (self.values[: logits.shape[0]].to(logits.device) > 0)
            first = logits.argmax(1)
            rows = torch.arange(logits.shape[0])
            logits[rows, first] = torch.where(tied, -INF, logits[rows, first])
        return super().apply(logits)


@defect("LP401", "claims argmax invariance; lowers the last output token, which seldom is a random row's best one")
class ClaimsOnLastToken(LastToken):
    def is_argmax_invariant(self) -> bool:
        return True


@defect("LP402", "claims invariance while nobody uses it")
class ClaimsWhenIdle(DenseMinP):
    def is_argmax_invariant(self) -> bool:
        return not self.used


@defect("LP402", "the claim differs between instances")
class ClaimPerInstance(DenseMinP):
    made = itertools.count()

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.claim = next(self.made) % 2 == 0

    def is_argmax_invariant(self) -> bool:
        return self.claim
