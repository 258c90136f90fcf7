"""Environments for ``lpkit doctor``: packages on disk, and the doctor's output about them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lpkit
from lpkit_conformance.doctor.examine import Diagnosis, Settings, examine
from lpkit_conformance.doctor.issue import Issue
from site_folder import Site

SDK = str(Path(lpkit.__file__).parents[1])
PORTABLE = "import lpkit\nclass P(lpkit.LogitsProcessor): ..."
READER = "import lpkit\nclass P(lpkit.LogitsProcessor):\n    history = 'tokens'"
COUNTER = READER.replace("tokens", "length")
ONLY_V1 = (
    "from vllm.v1.sample.logits_processor import LogitsProcessor\n"
    "class P(LogitsProcessor):\n    def update_state(self, update): ..."
)
ONLY_V2 = "from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor\nclass P(LogitsProcessor): ..."
KEPT = (
    "from vllm.v1.sample.logits_processor import LogitsProcessor\n"
    "class P(LogitsProcessor):\n    def update_state(self, update):\n"
    "        for index, params, prompt, output in update.added:\n            self.kept[index] = output"
)
DIM = "from elsewhere import Base\nclass P(Base): ..."


class Place(Site):
    """A site folder that is examined."""

    def examine(self, **settings: Any) -> Diagnosis:
        return examine(Settings(**settings), [str(self.folder), SDK], self.folder.parent)

    def engine(self, version: str, name: str = "vllm", triton: bool = True) -> Place:
        self.dist(name, version, top_level="vllm\n")
        if triton:
            self.write("triton/__init__.py")
        return self

    def dist(self, name: str, *args: Any, top_level: str = "", **options: Any) -> None:
        super().dist(name, *args, **options | ({"top_level.txt": top_level} if top_level else {}))

    def plugin(self, body: str) -> Place:
        self.write("plug.py", body)
        self.dist("plug-dist", "0.7", "plug = plug:P")
        return self


def codes(report: Diagnosis, level: str | None = None) -> list[str]:
    return sorted(issue.code for issue in report.issues if level in (None, issue.level))


def the(report: Diagnosis, code: str) -> Issue:
    (found,) = [issue for issue in report.issues if issue.code == code]
    return found


def said(report: Diagnosis) -> list[str]:
    return [effect for _, _, effect in report.effects()]
