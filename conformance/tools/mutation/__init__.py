"""Mutation testing of the suite: ``make mutation``.

mutants.py: makes them. judge.py: puts one before the suite. probes.py: processors that show what a mutant of the SDK
does. survivors.py: those judged by hand. page.py: docs/evidence/mutation.md.
"""
