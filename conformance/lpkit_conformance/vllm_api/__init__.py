"""vLLM's own modules if vLLM can be imported, else a stand-in for the modules that plugins import."""
