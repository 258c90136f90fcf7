"""``lpkit bench``: what a processor costs per step, beside what its users could run instead.

:mod:`world` plays the engine, :mod:`sides` are what is measured, :mod:`alternatives` says what else there is,
:mod:`measure` takes turns among them, :mod:`child` does all that in a process of its own, :mod:`run` is its parent, and
:mod:`results` is what comes out.
"""
