"""V2's request slots: a LIFO free list and the buffers that processors may read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from lpkit.runtime.batch.buffers import HostBackedTensor, StagedTensor
from lpkit.runtime.batch.logits import pick_device
from lpkit.v2 import LogitsProcRequestState

if TYPE_CHECKING:
    from lpkit.runtime.batch.request import Request


class V2Slots:
    """The slot of each request, which keeps it until it is freed.

    Args:
        max_num_reqs: number of slots; the highest is assigned first.
        max_model_len: columns of the token buffer.
        device: where the ``.gpu`` side of the buffers lives.
        vocab_size: size of the vocabulary, for processors.
        poison: overwrite retired ``prompt_len.gpu`` and ``prefill_len.gpu`` tensors at every flush.

    Attributes:
        state: the buffers as processors get them.
        total_len_np: host copy of ``total_len``, exact because the reference engine has no drafts.
    """

    def __init__(
        self,
        max_num_reqs: int,
        max_model_len: int = 1024,
        device: str | torch.device = "cpu",
        *,
        vocab_size: int = 512,
        poison: bool = False,
    ) -> None:
        self.max_num_reqs = max_num_reqs
        self.max_model_len = max_model_len
        self.device = pick_device(device)
        # Buffers are written in place from outside inference mode too.
        with torch.inference_mode(False):
            self.all_token_ids = StagedTensor((max_num_reqs, max_model_len), torch.int32, self.device)
            self.total_len = StagedTensor(max_num_reqs, torch.int32, self.device)
            self.prompt_len = HostBackedTensor(max_num_reqs, torch.int32, self.device, poison)
            self.prefill_len = HostBackedTensor(max_num_reqs, torch.int32, self.device, poison)
        self.total_len_np = np.zeros(max_num_reqs, dtype=np.int32)
        self.state = LogitsProcRequestState(
            device=self.device,
            max_num_reqs=max_num_reqs,
            vocab_size=vocab_size,
            all_token_ids=self.all_token_ids,
            prompt_len=self.prompt_len,
            prefill_len=self.prefill_len,
            total_len=self.total_len,
        )
        self._free = list(range(max_num_reqs))
        self._slots: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, request_id: object) -> bool:
        return request_id in self._slots

    def slot(self, request_id: str) -> int:
        """Return the slot of the request ``request_id``, or raise KeyError."""
        return self._slots[request_id]

    def change(self, leaving: Iterable[str], arriving: Iterable[Request]) -> Iterator[tuple[Request, int]]:
        """Run a whole step in the engine's order: free slots, then give each arrival a slot.

        Yields:
            Each arriving request with its slot. Processors must get it before the next arrival; after the last arrival,
            all is flushed.

        Args:
            leaving: ids of requests that leave.
            arriving: new and resumed requests.
        """
        # Sorted, so that all ranks choose the same slots.
        for request_id in sorted(leaving):
            self.free(request_id)
        arrived = False
        for request in arriving:
            arrived = True
            yield request, self.add(request)
        if arrived:
            self.flush()

    def add(self, request: Request) -> int:
        """Give a request the most recently freed slot, and stage its tokens.

        The lengths in ``.np`` are valid at once; device buffers are valid after :meth:`flush`.

        Args:
            request: a new or resumed request, with token ids.

        Returns:
            The slot.

        Raises:
            ValueError: no slot is free, the id has a slot already, or the prompt is too long or has no ids.
        """
        if request.request_id in self._slots:
            raise ValueError(f"request {request.request_id!r} has a slot already")
        if not self._free:
            raise ValueError(f"all {self.max_num_reqs} slots are taken")
        if request.prompt_token_ids is None:
            raise ValueError("V2 takes no request without prompt token ids")
        if request.total_len > self.max_model_len:
            raise ValueError(f"{request.total_len} tokens do not fit max_model_len {self.max_model_len}")
        slot = self._free.pop()
        self._slots[request.request_id] = slot
        self.prompt_len.np[slot] = request.prompt_len
        self.prefill_len.np[slot] = self.total_len_np[slot] = request.total_len
        self.total_len.stage_write_elem(slot, request.total_len)
        self.all_token_ids.stage_write(slot, 0, [*request.prompt_token_ids, *request.output_token_ids])
        return slot

    def free(self, request_id: str) -> int | None:
        """Free the slot of the request ``request_id`` and return it; None without a slot. No buffer is cleared."""
        slot = self._slots.pop(request_id, None)
        if slot is not None:
            self._free.append(slot)
        return slot

    def flush(self) -> None:
        """Send staged values to the device; rebinds ``prompt_len.gpu`` and ``prefill_len.gpu``."""
        self.prompt_len.flush()
        self.prefill_len.flush()
        self.total_len.apply_write()
        self.all_token_ids.apply_write()

    def commit(self, slot: int, token_ids: Sequence[int]) -> None:
        """Append generated tokens to a slot's history, on the device at once.

        Args:
            slot: of the request.
            token_ids: the generated tokens.

        Raises:
            ValueError: the tokens do not fit ``max_model_len``.
        """
        start = int(self.total_len_np[slot])
        end = start + len(token_ids)
        if end > self.max_model_len:
            raise ValueError(f"{end} tokens do not fit max_model_len {self.max_model_len}")
        if len(token_ids) == 1:
            self.all_token_ids.gpu[slot, start] = token_ids[0]
        else:
            self.all_token_ids.gpu[slot, start:end] = torch.tensor(token_ids, dtype=torch.int32, device=self.device)
        self.total_len.gpu[slot] = end
        self.total_len_np[slot] = end

    def commit_each(self, slots: Sequence[int], token_ids: Sequence[int]) -> None:
        """Append one token to each of several distinct slots at once.

        Args:
            slots: distinct slots.
            token_ids: one token for each slot.
        """
        if not slots:
            return
        places = np.asarray(slots, dtype=np.int64)
        lengths = self.total_len_np[places]
        if int(lengths.max()) >= self.max_model_len:
            raise ValueError(f"a request has reached max_model_len {self.max_model_len}")
        packed = torch.from_numpy(np.stack([places, lengths.astype(np.int64), np.asarray(token_ids, np.int64)]))
        index, position, tokens = packed.to(self.device).unbind()
        self.all_token_ids.gpu[index, position] = tokens.to(torch.int32)
        self.total_len.gpu[index] = (position + 1).to(torch.int32)
        self.total_len_np[places] = lengths + 1
