"""Base classes of processors that run on both of vLLM's runners, and the batch bookkeeping behind them."""
