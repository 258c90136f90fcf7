"""Tells lpkit the size of the model's vocabulary in vLLM's API server.

vLLM validates arguments there without saying for which model. With ``vllm serve MODEL --middleware
lpkit.front_end.KnowsVocabulary``, a request with a token id outside the vocabulary is refused with 400. Otherwise the
engine declines it: the request runs without the processor, and the log says why.
"""

from __future__ import annotations

import logging
from typing import Any

from lpkit.portable.token_ids import known_vocabulary

__all__ = ["KnowsVocabulary"]


class KnowsVocabulary:
    """Middleware that reads the vocabulary's size from the server's configuration once, and passes everything on."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._asked = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        config = getattr(getattr(scope.get("app"), "state", None), "vllm_config", None)
        if config is not None and not self._asked:
            self._asked = True
            try:
                known_vocabulary[:] = [int(config.model_config.get_vocab_size())]
            except Exception:  # serving goes on as without it
                logging.getLogger("lpkit").exception("the vocabulary's size is not known: the engine checks token ids")
        await self._app(scope, receive, send)
