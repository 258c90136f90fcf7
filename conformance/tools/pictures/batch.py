"""One program on both runners: rows that move, slots that stay."""

from __future__ import annotations

from lpkit_conformance.hosts import parts_of
from lpkit_conformance.hosts.plugin_under_test import PluginUnderTest
from lpkit_conformance.oracle.picture import record_frames
from lpkit_conformance.oracle.timeline import timeline
from lpkit_conformance.programs.generate import Arrive, Finish, Op, Preempt, Resume, Step, Swap
from lpkit_conformance.report.drawing import drawing
from lpkit_conformance.report.svg import label
from lpkit_conformance.settings.cases import Case
from lpkit_conformance.settings.hosts import HOSTS

from pictures.canvas import canvas, finished, place

OPS: tuple[Op, ...] = (
    *(Arrive(name) for name in "ABCD"),
    Step(),
    *(Finish("A"), Finish("C"), Arrive("E"), Step()),
    *(Preempt("B"), Step()),
    *(Resume("B"), Swap(0, 1), Step()),
)
HEADINGS = {"v1": "V1: rows move to close gaps", "v2": "V2: a request keeps its slot"}


def picture() -> str:
    """The batch on V1, and below it the same program on V2."""
    root = canvas("The same requests on both runners: on V1 they move between rows, on V2 they stay in their slots")
    top, width = 0.0, 0.0
    for host, heading in HEADINGS.items():
        subject = PluginUnderTest("", object, host, Case())
        frames, arguments = record_frames(subject, OPS, 8, parts_of(host).host)
        label(root, "heading", 4, top + 14, heading)
        inner = drawing(timeline(frames, OPS, arguments, HOSTS[host].position, None), heading)
        wide, high = place(root, inner, top + 24)
        top, width = top + high + 44, max(width, wide)
    return finished(root, width, top - 16)
