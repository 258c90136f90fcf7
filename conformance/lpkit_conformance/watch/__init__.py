"""`lpkit watch`: samples the steps of a live server and reports processors that break a rule.

vLLM imports this module in each of its processes wherever lpkit is installed. It imports nothing but ``os`` and does
nothing unless ``LPKIT_WATCH`` or ``LPKIT_QUARANTINE`` is set. An error of the watcher never disturbs serving: it is
logged and counted.
"""

import os

SWITCH = "LPKIT_WATCH"
"""The environment variable: ``1``, or the path of a TOML file with settings."""

QUARANTINE = "LPKIT_QUARANTINE"
"""The environment variable that keeps exceptions of processors from ending the engine."""

OFF = frozenset({"", "0", "false", "off", "no"})
"""Values that mean the same as no variable."""


def activate() -> None:
    """Watch this process if a variable asks for it; the entry point in ``vllm.general_plugins``."""
    value, quarantine = (os.environ.get(name, "").strip() for name in (SWITCH, QUARANTINE))
    if {value.lower(), quarantine.lower()} <= OFF:
        return
    try:
        from lpkit_conformance.watch.install import install

        install("" if value.lower() in OFF else value, quarantine.lower() not in OFF)
    except Exception:
        import logging

        logging.getLogger("vllm.lpkit.watch").warning("lpkit watch is off; serving is unaffected", exc_info=True)
