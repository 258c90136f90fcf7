"""What switches the watcher on; read in every process of vLLM, so it imports nothing."""

SWITCH = "LPKIT_WATCH"
"""The variable: ``1``, or the path of a TOML file with settings."""

OFF = frozenset({"", "0", "false", "off", "no"})
ON = frozenset({"1", "true", "on", "yes"})
