"""What released vLLMs say about the facts that lpkit relies on, read from their sources: ``make canary``.

facts.py: what is looked at, and how it is read. history.py: what lpkit takes it to be, release by release.
releases.py: where the sources come from. page.py: docs/vllm-releases.md. None of vLLM's code is run.
"""
