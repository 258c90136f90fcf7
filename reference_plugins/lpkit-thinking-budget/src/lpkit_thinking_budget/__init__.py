"""A logits processor for vLLM."""

from lpkit_thinking_budget.processor import ThinkingBudget

__all__ = ["ThinkingBudget"]
