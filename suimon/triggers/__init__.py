"""Somebody asks: what arrives at a door becomes a run, or waits, visibly."""
