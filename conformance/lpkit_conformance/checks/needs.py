"""Modules and classes that checks need when they run; :mod:`lpkit_conformance.checks.lazily` imports them then."""

# mypy: implicit-reexport
# ruff: noqa: F401

import numpy as np
import torch
from lpkit import runtime
from lpkit.portable import by_slot
from lpkit.runtime.engine import v1_async

from lpkit_conformance.activity import acting, admission, declined, stand
from lpkit_conformance.checks import dropped, engine_data, exact_ids, hostile, odd_arguments, spoilt
from lpkit_conformance.checks.together import both, evidence
from lpkit_conformance.checks.together import pair as pairs
from lpkit_conformance.expectation import compare, distributions, rank_process, ranks, solo, speculation
from lpkit_conformance.explanation import changes, culprit, findings, following, state, trace_picture, verify, writes
from lpkit_conformance.hosts import beams, parts, recorded, requests, v1, v2
from lpkit_conformance.hosts.base import Driver, Host, Watch
from lpkit_conformance.instruments import (
    devices,
    dispatch,
    edits,
    host_reads,
    in_flight,
    meta_kernels,
    module_state,
    operations,
    process_settings,
    recorded_steps,
    trails,
    waits,
)
from lpkit_conformance.subject import calls
from lpkit_conformance.subject.subject import Subject
from lpkit_conformance.vllm_api import stub
from lpkit_conformance.watch import rules
