"""The rules of a vLLM release: a plugin is not blamed for mishandling calls that the release does not make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from lpkit._nearest import did_you_mean

from lpkit_conformance.checks.catalogue import all_checks
from lpkit_conformance.errors import UsageError
from lpkit_conformance.vllm_api.facts import VLLM, in_full
from lpkit_conformance.vllm_api.releases import (
    ASYNC_SINCE,
    NO_PROMPT_IDS_SINCE,
    OLDEST_SUPPORTED,
    V2_PROCESSORS_SINCE,
    VALIDATED_SINCE,
    Release,
    is_before,
    parse_release,
)
from lpkit_conformance.vllm_api.runners import V1, V2

_FACTS: Final[Mapping[Release, str]] = {
    VALIDATED_SINCE: "nothing calls validate_params before {}",
    NO_PROMPT_IDS_SINCE: "every prompt has token ids before {}",
    ASYNC_SINCE: "there are no placeholders before {}, the first with asynchronous scheduling",
}
"""Features that older releases lack, in words, by the first release that has them."""


@dataclass(frozen=True)
class ReleaseRules:
    """The rules in which a release differs from others.

    Attributes:
        name: as vLLM publishes it.
        release: the same as numbers.
    """

    name: str
    release: Release

    @property
    def without(self) -> tuple[str, ...]:
        """Codes of checks that have no meaning there."""
        return tuple(check.code for check in all_checks() if check.since and is_before(self.release, check.since))

    @property
    def v2(self) -> bool:
        """True if its V2 runner loads custom processors."""
        return not is_before(self.release, V2_PROCESSORS_SINCE)

    def hosts(self, asked: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """Return the hosts of ``asked`` that the release has; None leaves the choice to the plugin's interfaces.

        Raises:
            UsageError: it has none of them.
        """
        if self.v2:
            return asked
        without_v2 = tuple(host for host in asked or (V1,) if host != V2)
        if not without_v2:
            raise UsageError(f"vLLM {self.name} loads no custom processors on V2", "omit --host v2")
        return without_v2

    @property
    def note(self) -> str:
        """Describe the omitted hosts in a sentence."""
        facts = []
        for since, fact in _FACTS.items():
            if is_before(self.release, since):
                codes = [check.code for check in all_checks() if check.since == since]
                facts.append(f"{fact.format(in_full(since))} ({', '.join(codes)})")
        if not self.v2:
            facts.insert(0, f"V2 loads no custom processors before {in_full(V2_PROCESSORS_SINCE)}")
        return f"judged by the rules of vLLM {self.name}: {'; '.join(facts) or 'those of the newest release'}"


def rules_of(version: str) -> ReleaseRules:
    """Return the rules of a release.

    Raises:
        UsageError: it is unknown, or older than lpkit supports; with the nearest release.
    """
    release = parse_release(version)
    if version not in VLLM.names or release is None:
        newest = f"The newest known one is {VLLM.names[-1]}, whose rules are the default."
        raise UsageError(f"there is no vLLM {version} that lpkit knows", did_you_mean(version, VLLM.names) or newest)
    if is_before(release, OLDEST_SUPPORTED):
        oldest = f"{in_full(OLDEST_SUPPORTED)} is the oldest"
        raise UsageError(f"vLLM {version} tells its processors of a batch in another order", oldest)
    return ReleaseRules(version, release)
