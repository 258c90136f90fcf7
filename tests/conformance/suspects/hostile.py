"""Processors that do to their process what no engine survives."""

import os
import subprocess
import sys
import time
from pathlib import Path

from bias import Good
from lpkit import v2
from lpkit_conformance.processes import gpu


class Hangs(Good):
    def apply(self, logits):
        while True:
            time.sleep(0.01)  # here


class Exits(Good):
    def apply(self, logits):
        os._exit(0)


class ExitsInMoreThanOneWay(Good):
    def is_argmax_invariant(self):
        os._exit(1)

    @classmethod
    def validate_params(cls, params):
        os._exit(2)

    def apply(self, logits):
        os._exit(3)

    def update_state(self, batch_update):
        os._exit(4)


class ExitsPolitely(Good):
    def apply(self, logits):
        sys.exit("enough")


class ExitsInValidation(Good):
    @classmethod
    def validate_params(cls, params):
        sys.exit(3)


class ExitsWhenCollected(Good):
    def __del__(self):
        os._exit(7)


class Recurses(Good):
    def apply(self, logits):
        return self.apply(logits)


class RaisesItsOwn(Good):
    class Enough(BaseException):
        pass

    def apply(self, logits):
        raise self.Enough


class PrintsMegabytes(Good):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        print("x" * 5_000_000)
        print("y" * 5_000_000, file=sys.stderr)


class LeavesAProcess(Good):
    """Notes the process in a file of the folder that the environment names."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        note = Path(os.environ["LPKIT_TEST_NOTE"])
        if not note.exists():
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
            note.write_text(str(child.pid), encoding="ascii")


class HangsInUpdates(Good):
    def update_state(self, batch_update):
        while batch_update is not None and batch_update.removed:
            time.sleep(0.01)  # here


class HangsOnBoth(HangsInUpdates, v2.LogitsProcessor):
    def __init__(self, vllm_config, *arguments):
        self.biases = {}

    def add_request(self, req_idx, params):
        time.sleep(300)


class WaitsAsLongAsAsked(Good):
    """Waits for ever once a huge argument arrives, which validation refuses."""

    most = 1000.0

    @classmethod
    def validate_params(cls, params):
        bias = (params.extra_args or {}).get("bias", 0.0)
        if type(bias) is not float or not -cls.most <= bias <= cls.most:
            raise ValueError("bias is a number up to the limit")

    def update_state(self, batch_update):
        for _, params, _, _ in batch_update.added if batch_update else ():
            bias = (params.extra_args or {}).get("bias")
            while type(bias) is float and bias > 1000.0:
                time.sleep(0.01)  # here
        super().update_state(batch_update)


class AcceptsLongWaits(WaitsAsLongAsAsked):
    most = 1e300


class Slow(Good):
    """Slow in each call; a whole check takes longer than the time limit of a call."""

    def apply(self, logits):
        time.sleep(0.02)
        return super().apply(logits)


class ExitsInBetween(Good):
    """Raises at one line for huge logits, and ends the process for an empty batch."""

    def apply(self, logits):
        if not len(logits):
            os._exit(3)
        if logits.abs().max() > 1e29:
            raise ValueError("too large")
        return super().apply(logits)


class BreaksTheGpu(Good):
    """Once, with many rows: from then on no call of the process reaches the GPU."""

    def apply(self, logits):
        note = Path(os.environ["LPKIT_TEST_NOTE"])
        if len(logits) > 3 and not note.exists():
            note.touch()
            gpu.error_of = lambda device: "CUDA error: device-side assert triggered"
        return super().apply(logits)
