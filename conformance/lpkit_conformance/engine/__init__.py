"""A tiny real vLLM engine, and all that lpkit does with it: ``lpkit check --engine vllm``, replays and recordings.

- The engine: ``model`` (its weights), ``tiny`` (the engine in this process), ``process`` (in a child process),
  ``following`` (given output), ``beyond_cpu`` (features that vLLM's CPU build lacks).
- Checks: ``checking`` gathers evidence from engines in child processes, ``child`` is their side, ``losses`` explains
  their ends, ``sizes`` chooses the engine. The rules are in :mod:`lpkit_conformance.checks.engine`.
- Requests: ``requests`` (the usual ones), ``played`` (a saved failure's), ``traced`` and ``drafted`` (a trace's).
- Recordings: ``recorded_workloads``, ``recording``, ``recorders``, ``input_batch``.

Nothing here imports torch or vLLM until an engine is started.
"""
