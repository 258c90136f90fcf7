"""Builds the ``LogitsContext`` of an ``apply`` call with the engine's dtypes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from lpkit.v2 import LogitsContext


class V2Row(NamedTuple):
    """One row of logits.

    Attributes:
        slot: the request's slot.
        pos: position of the row's input token; ``pos + 1`` tokens are visible.
        input_id: the token at that position; -1 for an unknown draft.
        local: offset among the request's rows, above 0 for drafts.
    """

    slot: int
    pos: int
    input_id: int
    local: int = 0


def make_context(
    rows: Iterable[V2Row],
    device: str | torch.device = "cpu",
    *,
    bounds: Sequence[int] | None = None,
    padding: int = 0,
    mapping_dtype: torch.dtype = torch.int64,
) -> LogitsContext:
    """Describe rows of logits to a processor.

    Args:
        rows: neighbouring rows with one slot belong to one request.
        device: of the tensors.
        bounds: per request, an upper bound of its visible tokens; by default the exact number.
        padding: zeros behind the bounds, as under full CUDA graphs.
        mapping_dtype: of ``expanded_idx_mapping`` and ``idx_mapping``: int64, and in vLLM 0.31 int32.

    Returns:
        The context that ``apply`` gets on V2.
    """
    rows = list(rows)
    starts = [i for i, row in enumerate(rows) if i == 0 or rows[i - 1].slot != row.slot]
    ends = [*starts[1:], len(rows)]
    if bounds is None:
        bounds = [max(row.pos for row in rows[a:b]) + 1 for a, b in zip(starts, ends[: len(starts)], strict=True)]
    if len(bounds) != len(starts):
        raise ValueError(f"{len(starts)} requests need {len(starts)} bounds, got {len(bounds)}")
    table = np.fromiter(chain.from_iterable(rows), np.int64, 4 * len(rows)).reshape(len(rows), 4)
    return context_of(table, np.array(starts, dtype=np.intp), bounds, device, padding, mapping_dtype)


def context_of(
    table: npt.NDArray[np.int64],
    starts: npt.NDArray[np.intp],
    bounds: Sequence[int],
    device: str | torch.device,
    padding: int = 0,
    mapping_dtype: torch.dtype = torch.int64,
) -> LogitsContext:
    """Do the same for rows in an array.

    Args:
        table: ``[rows, 4]``, the fields of :class:`V2Row`.
        starts: first row of each request.
    """
    mapping_np = table[starts, 0].astype(np.intp)
    slots, pos, input_ids, local = torch.from_numpy(table.T.copy()).to(device)
    expanded = slots.to(mapping_dtype)
    return LogitsContext(
        expanded_idx_mapping=expanded,
        idx_mapping=expanded if len(starts) == len(table) else torch.from_numpy(mapping_np).to(device, mapping_dtype),
        idx_mapping_np=mapping_np,
        expanded_local_pos=local.to(torch.int32),
        input_ids=input_ids.to(torch.int32),
        pos=pos,
        seq_lens_upper_bound_np=np.array([*bounds, *[0] * padding], dtype=np.int32),
    )
