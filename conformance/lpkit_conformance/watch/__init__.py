"""`lpkit watch`: samples the steps of a live server and reports processors that break a rule.

vLLM imports this module in each of its processes wherever lpkit is installed. It imports nothing but ``os`` and does
nothing unless ``LPKIT_WATCH`` is set. An error of the watcher never disturbs serving: it is logged and counted.
"""

import os

SWITCH = "LPKIT_WATCH"
"""The environment variable: ``1``, or the path of a TOML file with settings."""

OFF = frozenset({"", "0", "false", "off", "no"})
"""Values that mean the same as no variable."""


def activate() -> None:
    """Watch this process if ``LPKIT_WATCH`` is set; the entry point in ``vllm.general_plugins``."""
    value = os.environ.get(SWITCH, "").strip()
    if value.lower() in OFF:
        return
    try:
        from lpkit_conformance.watch.install import install

        install(value)
    except Exception:
        import logging

        logging.getLogger("vllm.lpkit.watch").warning("lpkit watch is off; serving is unaffected", exc_info=True)
