"""Our own definitions of vLLM's interfaces, used where vLLM is not installed. Import them through
:mod:`lpkit.v1`, :mod:`lpkit.v2` and :mod:`lpkit.sampling_params`, which prefer vLLM's objects."""
