"""``lpkit check --engine vllm``: a plugin in a tiny real vLLM engine, on the runners that this vLLM has.

The checks are in :mod:`lpkit_conformance.engine_checks.lp9_engine`; here is what gathers their evidence. ``run`` drives
engines in child processes, ``child`` is what those processes do, ``workload`` the requests, ``evidence`` what came
back and how it is compared.
"""
