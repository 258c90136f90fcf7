"""Correct V1 processors that act at few steps only."""

from __future__ import annotations

from zoo.bases import AfterMarker, IfBest, IfPrompted, Late
from zoo.registry import sound


@sound("acts on the first token only")
class FirstTokenOnly(Late):
    def due(self, outputs: list[int]) -> bool:
        return not outputs


@sound("acts on every tenth token only")
class EveryTenth(Late):
    def due(self, outputs: list[int]) -> bool:
        return len(outputs) % 10 == 9


@sound("acts only after a marker that no case gives")
class AfterMarkerOnly(AfterMarker):
    pass


@sound("acts only if a certain token is the best one")
class IfBestOnly(IfBest):
    pass


@sound("acts only if a certain token is in the prompt")
class IfPromptedOnly(IfPrompted):
    pass


@sound("begins with the 100th token")
class FromTheHundredth(Late):
    FIRST = 100
