"""What released vLLMs say about the facts that lpkit relies on, read from their sources: ``make canary``.

facts.py: what is looked at, and how it is read. history.py: what lpkit takes it to be, release by release.
releases.py: where the sources come from. page.py: docs/evidence/vllm-releases.md. Of vLLM's code, behaviour.py
runs three small modules; the rest is only read.
"""
