"""By which rules a release of vLLM has a plugin judged: what older ones do not do, no plugin for them gets wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lpkit._nearest import did_you_mean

from lpkit_conformance.discovery.releases import (
    ASYNC_SINCE,
    NO_PROMPT_IDS_SINCE,
    V2_PROCESSORS_SINCE,
    VALIDATED_SINCE,
    Release,
    is_before,
    parse_release,
)
from lpkit_conformance.errors import UsageError
from lpkit_conformance.vllm_api.runners import V1, V2

_NAMES: Final = """
0.10.1 0.10.1.1 0.10.2 0.11.0 0.11.1 0.11.2 0.12.0 0.13.0 0.14.0 0.14.1 0.15.0 0.15.1 0.16.0 0.17.0 0.17.1
0.18.0 0.18.1 0.19.0 0.19.1 0.20.0 0.20.1 0.20.2 0.21.0 0.22.0 0.22.1 0.23.0 0.24.0 0.25.0 0.25.1 0.26.0 0.27.0
0.27.1 0.28.0 0.29.0 0.30.0 0.31.0 0.32.0 0.33.0
"""
RELEASES: Final = tuple(_NAMES.split())
"""Those whose sources have been compared with what lpkit relies on (``make canary``), oldest first."""

OLDEST: Final = "0.10.2"
"""The first with today's order of a batch update's fields."""

_SINCE: Final[tuple[tuple[Release, str, tuple[str, ...]], ...]] = (
    (VALIDATED_SINCE, "nothing calls validate_params before 0.11.1", ("LP102", "LP103")),
    (NO_PROMPT_IDS_SINCE, "every prompt has token ids before 0.11.0", ("LP503",)),
    (
        ASYNC_SINCE,
        "there are no placeholders before 0.14.0, the first with asynchronous scheduling",
        ("LP505", "LP508"),
    ),
)
"""Facts, and the checks that are about nothing else."""


@dataclass(frozen=True)
class ReleaseRules:
    """What a release differs in.

    Attributes:
        name: as vLLM publishes it.
        release: the same as numbers.
    """

    name: str
    release: Release

    @property
    def without(self) -> tuple[str, ...]:
        """Codes of checks that have no meaning there."""
        return tuple(code for since, _, codes in _SINCE if is_before(self.release, since) for code in codes)

    @property
    def v2(self) -> bool:
        """Whether its V2 runner loads custom processors."""
        return not is_before(self.release, V2_PROCESSORS_SINCE)

    def hosts(self, asked: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """Those of ``asked`` that the release has; None leaves the choice to the plugin's interfaces.

        Raises:
            UsageError: it has none of them.
        """
        if self.v2:
            return asked
        found = tuple(host for host in asked or (V1,) if host != V2)
        if not found:
            raise UsageError(f"vLLM {self.name} loads no custom processors on V2", "omit --host v2")
        return found

    @property
    def note(self) -> str:
        """What is left out, as a sentence."""
        facts = [f"{fact} ({', '.join(codes)})" for since, fact, codes in _SINCE if is_before(self.release, since)]
        if not self.v2:
            facts.insert(0, "V2 loads no custom processors before 0.31.0")
        return f"judged by the rules of vLLM {self.name}: {'; '.join(facts) or 'those of the newest release'}"


def rules_of(version: str) -> ReleaseRules:
    """The rules of a release.

    Raises:
        UsageError: it is unknown, or older than what lpkit supports; with the nearest one.
    """
    release = parse_release(version)
    if version not in RELEASES or release is None:
        known = f"The newest known one is {RELEASES[-1]}, whose rules are the default."
        raise UsageError(f"there is no vLLM {version} that lpkit knows", did_you_mean(version, RELEASES) or known)
    if version in RELEASES[: RELEASES.index(OLDEST)]:
        raise UsageError(f"vLLM {version} tells its processors of a batch in another order", f"{OLDEST} is the oldest")
    return ReleaseRules(version, release)
