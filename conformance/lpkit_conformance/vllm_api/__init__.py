"""vLLM's own modules if vLLM can be imported, else a stand-in; and a table of facts about vLLM, by release."""
