"""`old_plugin:OldTarget` on both of vLLM's runners."""

from __future__ import annotations

import lpkit
from old_plugin import OldTarget


class MyProc(lpkit.Bridged):
    """On V1 the engine gets the V1 class itself; on V2 the bridge tells it of its rows as the V1 engine does."""

    wraps = OldTarget

    # Keys of `SamplingParams.extra_args`: on V2 a request that has none of them is not shown to the V1 class and costs
    # nothing. Empty, every request is shown to it. These were found in its module; are they all it looks at?
    # keys = ("old_target",)
    keys = ()

    # What it reads of the token lists: "tokens", "length" or "none". Less is cheaper: see the README.
    history = "tokens"
