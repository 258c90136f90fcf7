"""``lpkit bench``: the cost of a processor per step, next to its alternatives.

:mod:`lpkit_conformance.hosts.steady` plays the engine and :mod:`measure` alternates between :mod:`candidates`, in a
child process (:mod:`child`) of :mod:`run`; :mod:`results` holds the numbers.
"""
