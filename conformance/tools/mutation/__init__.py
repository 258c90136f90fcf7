"""Mutation testing of the checks: ``make mutation``.

``mutants`` makes the mutants, and ``judge`` runs the checks on a mutant. ``probes`` are processors that reveal the
effect of a mutant of the SDK. ``survivors.toml`` explains the mutants that may survive, and ``page`` counts.
"""
