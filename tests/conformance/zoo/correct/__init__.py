"""Correct processors by style; those in `*_odd` look wrong."""
