"""Agents: what runs a model in a loop, and the tools that it has."""
