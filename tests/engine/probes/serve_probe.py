"""``vllm``'s command on the V2 runner of a machine without a GPU: ``python serve_probe.py serve MODEL ...``."""

from __future__ import annotations

import sys

from lpkit_conformance.engine.tiny import prepare

# Not under the guard below: vLLM spawns its engine, and a spawned process imports this file too before anything else.
prepare("v2")

if __name__ == "__main__":
    from vllm.entrypoints.cli.main import main

    sys.exit(main())
