"""The ``lpkit`` command: a thin shell, one module per command, over the conformance suite and the SDK."""
