"""Recorded sessions through a simulated prompt cache."""
