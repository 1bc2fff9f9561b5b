"""Texts that ship with the package."""
