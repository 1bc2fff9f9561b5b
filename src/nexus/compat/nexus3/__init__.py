"""Modules that document 004 names under `nexus3`, implemented on Nexus."""
