"""What a request's logits should be: solo runs, comparison, shrinking, and the evidence of a departure."""
