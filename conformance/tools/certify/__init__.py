"""Runs reference plugins and engine tests on real engines of several vLLM releases, and writes down what happened."""
