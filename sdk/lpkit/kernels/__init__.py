"""Masks and statistics of whole vocabularies, at the speed of the memory that the logits lie in.

All functions take float32 logits ``[n, vocab]`` of any strides. A name that ends in ``_`` edits them in place and
returns them; masking writes -inf, and what is kept keeps every bit. Comparisons are those of ``masked_fill_``: a NaN
is neither below nor above a limit. A batch without rows is fine. Up to the size of a block the number of operations
does not depend on ``n``; beyond it, on the number of blocks.

On CUDA these are fused Triton kernels where Triton works (``LPKIT_TRITON=0`` in the environment disables them). What
they read from memory and write there is documented in :mod:`lpkit.kernels.traffic`.

``scratch`` is for rules of several steps inside :func:`blocks`: memory that a block lends. Leave it out elsewhere.
"""

from lpkit.kernels.entropy import dynamic_temperature_, log_sum_exp_and_entropy, mask_unlikely_
from lpkit.kernels.fused import prepare, prepare_few
from lpkit.kernels.masks import (
    add_where_hashed_,
    exclude_top_choices_,
    keep_ids_,
    keep_members_,
    least_from,
    log_sum_exp,
    mask_above_,
    mask_below_,
    mask_deviations_below_top_,
    mask_far_below_top_,
    mask_ids_,
    top_and_deviation,
)
from lpkit.kernels.memory import BLOCK_BYTES, WHOLE_BYTES, blocks
from lpkit.kernels.penalties import penalized
from lpkit.kernels.sorting import sort, sorted_values
from lpkit.kernels.tournament import tournament_

__all__ = [
    "BLOCK_BYTES",
    "WHOLE_BYTES",
    "add_where_hashed_",
    "blocks",
    "dynamic_temperature_",
    "exclude_top_choices_",
    "keep_ids_",
    "keep_members_",
    "least_from",
    "log_sum_exp",
    "log_sum_exp_and_entropy",
    "mask_above_",
    "mask_below_",
    "mask_deviations_below_top_",
    "mask_far_below_top_",
    "mask_ids_",
    "mask_unlikely_",
    "penalized",
    "prepare",
    "prepare_few",
    "sort",
    "sorted_values",
    "top_and_deviation",
    "tournament_",
]
