"""The modules that document 003 names under `nanobot`, implemented on Nexus."""
