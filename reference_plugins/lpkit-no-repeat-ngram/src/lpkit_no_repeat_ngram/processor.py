"""No n-gram twice; the rule is `lpkit.rules.no_repeat_ngram`."""

from __future__ import annotations

from lpkit.rules.no_repeat_ngram import NoRepeatNgram as Rule


class NoRepeatNgram(Rule):
    """Mask tokens that would complete an n-gram of `no_repeat_ngram_size` tokens a second time."""

    class Params(Rule.Params, prefix="no_repeat_ngram_"):
        """A request's settings: keys of `SamplingParams.extra_args`, over HTTP of `vllm_xargs`."""
