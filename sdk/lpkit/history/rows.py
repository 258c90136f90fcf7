"""Arguments of an author's ``process`` and ``edit``: the processor's rows, and the logits at chosen token ids."""

from __future__ import annotations

from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import torch
from torch.utils.dlpack import from_dlpack

from lpkit.columns.column import Column
from lpkit.kernels import fused

if TYPE_CHECKING:
    from lpkit.columns.memory import Gathered
    from lpkit.history.reading import History

HistoryUse = Literal["none", "length", "tokens"]
"""How much of its requests' history a processor reads."""

HISTORY_USES = get_args(HistoryUse)


class HistoryNotDeclaredError(TypeError):
    """A processor read more of the history than its ``history`` attribute announces."""


class Rows:
    """The logits rows of the requests that a processor admitted, in batch order.

    Under speculative decoding a request has one row per draft token, and a row may be listed twice: the result must not
    depend on how often a row is processed.

    Attributes:
        n: number of rows.
        index: ``[n]`` int64, row numbers in the batch's logits; read-only.
        slots: ``[n]`` int64, the slots of their requests; read-only.
        whole: True if these are all rows of the batch, in order.
    """

    def __init__(
        self,
        index: torch.Tensor,
        slots: torch.Tensor,
        history: History | None,
        declared: HistoryUse,
        temperature: Column,
        whole: bool = False,
    ) -> None:
        self.n = slots.shape[0]
        self.index = index
        self.slots = slots
        self._history = history
        self._declared = declared
        self._temperature = temperature
        self.whole = whole
        self._gathered: Gathered | None = None  # the columns, once read

    @cached_property
    def temperature(self) -> torch.Tensor:
        """``[n, 1]`` float32: temperature by which the engine will still divide these logits. 1 for greedy requests,
        and after the division (V1's sampling stage)."""
        return self._temperature._unsqueezed(self)

    @property
    def prompt_len(self) -> torch.Tensor:
        """``[n]`` int64: number of prompt tokens; 0 for prompt embeddings on V1. Needs ``history = "length"``."""
        return self._lengths[0]

    @property
    def total_len(self) -> torch.Tensor:
        """``[n]`` int64: number of tokens before the token to choose, drafts included. Needs ``history = "length"``."""
        return self._lengths[1]

    @property
    def output_len(self) -> torch.Tensor:
        """``[n]`` int64: ``total_len - prompt_len``; 0 at a request's first token. Needs ``history = "length"``."""
        return self.total_len - self.prompt_len

    @property
    def tokens(self) -> torch.Tensor:
        """``[n, W]`` int64: prompt and output token ids from the start, -1 behind the end of each row.

        ``W`` is at least the longest row; it grows in powers of two, so that kernels see few shapes. Needs
        ``history = "tokens"``.

        Raises:
            HistoryNotDeclaredError: the class declares less (a ``TypeError``).
        """
        return self._with_tokens.tokens

    @property
    def is_output(self) -> torch.Tensor:
        """``[n, W]`` bool: True where :attr:`tokens` were generated; False behind the end."""
        return self._with_tokens.is_output

    @property
    def _lengths(self) -> tuple[torch.Tensor, torch.Tensor]:
        if self._history is None or self._declared == "none":
            raise HistoryNotDeclaredError("declare history = 'length' to read lengths")
        return self._history.lengths

    @property
    def _with_tokens(self) -> History:
        if self._history is None or self._declared != "tokens":
            raise HistoryNotDeclaredError("declare history = 'tokens' to read token ids")
        return self._history


class SparseLogits:
    """Some elements of each row of a batch of logits.

    ``logits[ids]`` reads ``[n, k]`` values at token ids ``[n, k]``; ``logits[ids] = values`` writes them. An id of -1
    reads the row's token 0 and writes nothing. An id of ``vocab_size`` or above, which a prompt may hold, reads the
    row's last token and writes nothing. An id that occurs twice in a row needs equal values.
    """

    def __init__(self, logits: torch.Tensor, rows: Rows) -> None:
        self._logits = logits
        self._index = rows.index
        self._rows = rows.index.unsqueeze(1)
        self._whole = rows.whole
        self._last = logits.shape[1] - 1

    def __getitem__(self, ids: torch.Tensor) -> torch.Tensor:
        """Read logits.

        Args:
            ids: int64 ``[n, k]``; k may be 0.

        Returns:
            float32 ``[n, k]``, a copy.
        """
        if (few := self._kernels(ids)) is not None:
            return few.read(self._logits, self._index, ids)  # type: ignore[no-any-return]
        return self._take(ids.clamp(0, self._last))

    def __setitem__(self, ids: torch.Tensor, values: torch.Tensor | float) -> None:
        """Write logits.

        Args:
            ids: int64 ``[n, k]``; k may be 0.
            values: ``[n, k]``, anything that broadcasts to it, or a number.
        """
        if ids.shape[1] == 0:
            return
        watched = isinstance(values, torch.Tensor) and fused.differentiated(values)
        if not watched and (few := self._kernels(ids)) is not None:
            few.write(self._logits, self._index, ids, values)
            return
        if not isinstance(values, torch.Tensor):
            # Filled on the device: making a tensor from a Python number would be a blocking copy from the host.
            values = torch.full((), values, dtype=self._logits.dtype, device=self._logits.device)
        spread = values.to(self._logits.dtype).expand(ids.shape)
        if not watched and self._by_numpy(ids):
            self._put(*self._filled(ids, spread))
            return
        within = ids.clamp(0, self._last)
        real = ids == within
        if fused.differentiated(self._logits):
            self._write_once(torch.where(real, ids, -1), spread)
            return
        # A padding write must not race with a real write, so it repeats a real write of its row. A row without real
        # writes rewrites one token that nothing else touches.
        first = real.to(torch.int8).argmax(1, keepdim=True)
        fill_ids = within.gather(1, first)
        fill_values = torch.where(real.gather(1, first), spread.gather(1, first), self._take(fill_ids))
        self._put(torch.where(real, ids, fill_ids), torch.where(real, spread, fill_values))

    def _take(self, ids: torch.Tensor) -> torch.Tensor:
        return self._logits.gather(1, ids) if self._whole else self._logits[self._rows, ids]

    def _put(self, ids: torch.Tensor, values: torch.Tensor) -> None:
        if self._whole:
            self._logits.scatter_(1, ids, values)
        else:
            self._logits[self._rows, ids] = values

    def _by_numpy(self, ids: torch.Tensor) -> bool:
        """True if the host can read the ids without waiting for a device."""
        on_host = fused.on_host(ids) and fused.on_host(self._logits)
        return on_host and self._plain(ids) and not fused.differentiated(self._logits)

    def _filled(self, ids: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Replace padding by harmless writes, as :meth:`__setitem__` chooses them.

        Torch dispatches none of this, so a step has as many operations with padding as without.
        """
        given = np.from_dlpack(ids)  # not Tensor.numpy(), which instruments rightly take for a wait
        if not given.size or (given.min() >= 0 and given.max() <= self._last):
            return ids, values
        new = np.from_dlpack(values.detach() if values.requires_grad else values)
        real = (given >= 0) & (given <= self._last)
        first = np.arange(len(given)), real.argmax(1)
        some, fill_ids, fill = real[first], given[first], new[first]
        if not some.all():
            fill_ids = np.where(some, fill_ids, 0)
            held = self._take(from_dlpack(fill_ids[:, np.newaxis]))
            fill = np.where(some, fill, np.from_dlpack(held)[:, 0])
        ids = from_dlpack(np.where(real, given, fill_ids[:, np.newaxis]))
        return ids, from_dlpack(np.where(real, new, fill[:, np.newaxis]))

    def _kernels(self, ids: torch.Tensor) -> ModuleType | None:
        """Return the kernels that read and write in one launch, if they suit the logits and the ids."""
        fit = self._plain(ids) and ids.shape[:1] == self._index.shape
        return fused.few_for(self._logits) if fit else None

    def _plain(self, ids: torch.Tensor) -> bool:
        return self._logits.dtype == torch.float32 and ids.dtype == torch.int64

    def _write_once(self, ids: torch.Tensor, values: torch.Tensor) -> None:
        """Write each element once: under autograd a second write would repeat the gradient."""
        ids, order = ids.sort(dim=1, stable=True)
        first = ids >= 0
        first[:, 1:] &= ids[:, 1:] != ids[:, :-1]
        row, place = first.nonzero(as_tuple=True)
        self._logits[self._rows[row, 0], ids[row, place]] = values[row, order[row, place]]
