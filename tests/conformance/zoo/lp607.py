"""Defects that LP607 must catch."""

from __future__ import annotations

import gc
import logging
import os
import signal
import threading
from typing import Any

import numpy as np
import torch
from lpkit import v2
from lpkit.v1 import BatchUpdate

from zoo.bases import Boost
from zoo.correct.v1 import Bias
from zoo.correct.v2 import V2MinP
from zoo.registry import defect, sound

_opened: list[int] = []


@defect("LP607", "adds a handler to the root logger", fix="getLogger(__name__)")
class ConfiguresLogging(Bias):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        logging.getLogger().addHandler(logging.NullHandler())


@defect(
    "LP607",
    "sets an environment variable for its requests",
    fix="environment variable",
    line='os.environ["ZOO_STEPS"] =',
)
class SetsTheEnvironment(Bias):
    def update_state(self, batch_update: BatchUpdate | None) -> None:
        os.environ["ZOO_STEPS"] = str(len(self.rows))
        super().update_state(batch_update)


@defect("LP607", "turns the garbage collector off while it adds requests", fix="garbage collector", line="gc.disable()")
class NeverCollects(Bias):
    def update_state(self, batch_update: BatchUpdate | None) -> None:
        gc.disable()
        super().update_state(batch_update)


@defect("LP607", "ends by itself when the engine is to stop", fix="leave signals", line="signal.signal(")
class HandlesSigterm(Bias):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        signal.signal(signal.SIGTERM, lambda *_: None)


@defect("LP607", "a thread for each instance, which never ends", line="threading.Thread(")
class LeavesAThread(Bias):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        threading.Thread(target=threading.Event().wait, args=(20.0,), daemon=True).start()


@defect("LP607", "a file for each instance, which stays open")
class LeavesAFileOpen(Bias):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        _opened.append(os.open(os.devnull, os.O_RDONLY))


@defect("LP607", "a table for a thousand rows and the longest context, whatever the engine's size", fix="max_num_seqs")
class PreallocatesATable(Bias):
    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        self.history = torch.empty(1024, 24576, dtype=torch.int64, device=device)


@defect("LP607", "turns the grad mode off for everyone", case={"extra_args": {"floor": 0.15}}, fix="torch.no_grad")
class TurnsGradOff(V2MinP):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        torch.set_grad_enabled(False)


@defect("LP607", "room for every request there may ever be, in an array", case={"extra_args": {"floor": 0.15}})
class PreallocatesAnArray(V2MinP):
    def __init__(self, vllm_config: Any, req_states: Any) -> None:
        super().__init__(vllm_config, req_states)
        self.room = np.empty(20_000_000)


@defect("LP607", "switches torch's deterministic mode on for the whole engine")
class Deterministic(Bias):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        torch.use_deterministic_algorithms(True)


@defect("LP607", "makes double precision the default", fix="pass `dtype=`", line="set_default_dtype(")
class DoublesTheDefault(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        torch.set_default_dtype(torch.float64)
        return super().apply(logits)


@defect("LP607", "makes double precision the default on V2", fix="pass `dtype=`", line="set_default_dtype(")
class DoublesTheDefaultOnV2(Boost):
    def apply(self, logits: torch.Tensor, ctx: v2.LogitsContext) -> torch.Tensor:
        torch.set_default_dtype(torch.float64)
        return super().apply(logits, ctx)


@defect("LP607", "turns numpy's warnings off for everyone", fix="np.errstate", line="np.seterr(")
class SilencesNumpy(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        np.seterr(all="ignore")
        return super().apply(logits)


@sound("turns numpy's warnings off where it computes")
class SilencesNumpyForItself(Bias):
    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        with np.errstate(all="ignore"):
            return super().apply(logits)
