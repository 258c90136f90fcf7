"""Masks and statistics of whole vocabularies, at the speed of memory.

All functions take float32 logits ``[n, vocab]`` of any strides. A function whose name ends in ``_`` edits them in place
and returns them. Masking writes -inf; other logits keep every bit. Comparisons follow ``masked_fill_``: a NaN is
neither below nor above a limit. ``n`` may be 0. Up to the size of a block, the number of operations does not depend on
``n``; beyond it, it depends on the number of blocks.

On CUDA these are fused Triton kernels where Triton works (``LPKIT_TRITON=0`` in the environment disables them).

``scratch`` is memory lent by a block, for rules of several steps inside :func:`blocks`. Leave it out elsewhere.
"""

from lpkit.kernels.entropy import dynamic_temperature_, log_sum_exp_and_entropy, mask_unlikely_

# Steps of other kernels and of lpkit itself: importable here, not published.
from lpkit.kernels.fused import prepare as prepare
from lpkit.kernels.fused import prepare_few as prepare_few
from lpkit.kernels.masks import (
    add_where_hashed_,
    exclude_top_choices_,
    keep_ids_,
    mask_below_,
    mask_deviations_below_top_,
    mask_far_below_top_,
    mask_ids_,
)
from lpkit.kernels.masks import keep_members_ as keep_members_
from lpkit.kernels.memory import BLOCK_BYTES as BLOCK_BYTES
from lpkit.kernels.memory import WHOLE_BYTES as WHOLE_BYTES
from lpkit.kernels.memory import blocks
from lpkit.kernels.sorting import sort, sorted_values
from lpkit.kernels.tournament import tournament_

__all__ = [
    "add_where_hashed_",
    "blocks",
    "dynamic_temperature_",
    "exclude_top_choices_",
    "keep_ids_",
    "log_sum_exp_and_entropy",
    "mask_below_",
    "mask_deviations_below_top_",
    "mask_far_below_top_",
    "mask_ids_",
    "mask_unlikely_",
    "sort",
    "sorted_values",
    "tournament_",
]
