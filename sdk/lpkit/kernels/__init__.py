"""Masks and statistics of whole vocabularies, at the speed of the memory that the logits lie in."""

from lpkit.kernels.fused import prepare
from lpkit.kernels.masks import (
    add_where_hashed_,
    keep_ids_,
    keep_members_,
    least_from,
    log_sum_exp,
    mask_above_,
    mask_below_,
    mask_far_below_top_,
    mask_ids_,
    top_and_deviation,
)
from lpkit.kernels.memory import BLOCK_BYTES, WHOLE_BYTES, blocks

__all__ = [
    "BLOCK_BYTES",
    "WHOLE_BYTES",
    "add_where_hashed_",
    "blocks",
    "keep_ids_",
    "keep_members_",
    "least_from",
    "log_sum_exp",
    "mask_above_",
    "mask_below_",
    "mask_far_below_top_",
    "mask_ids_",
    "prepare",
    "top_and_deviation",
]
