"""Defects that LP201 must catch, and correct processors that resemble them."""
