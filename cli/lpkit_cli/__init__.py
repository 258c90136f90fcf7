"""The ``lpkit`` command over the conformance suite and the SDK, with one thin module per command."""
