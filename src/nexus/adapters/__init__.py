"""Nexus inside agent frameworks: one module for each, on public names alone, imported by its full name.

For a client object of a provider's package, without a framework, there is `nexus.fitted`.
"""
