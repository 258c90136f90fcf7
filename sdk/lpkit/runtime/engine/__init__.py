"""Engines without a model: steps, asynchronous scheduling, and the scheduler that plans the steps."""
