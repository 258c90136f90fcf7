"""``lpkit bench``: what a processor costs per step, next to its alternatives.

:mod:`steady_batch` plays the engine, :mod:`candidates` are what is measured, :mod:`measure` alternates between them,
:mod:`child` does all that in a child process, :mod:`run` is its parent, and :mod:`results` is what comes out.
"""
