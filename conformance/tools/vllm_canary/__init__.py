"""``make canary``: compares the facts that lpkit relies on with the sources of vLLM's releases.

releases.py fetches the sources, readers.py reads the facts off them, compare.py holds them against
``lpkit_conformance/vllm_api/facts.toml``, and page.py renders that table for the documentation. behaviour.py runs three
small modules of vLLM; its other code is only read.
"""
