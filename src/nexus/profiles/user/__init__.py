"""Profiles of one's own, as files: `profiles/NAME.toml` or `NAME.py` in the user's folder, `NAME.toml` in a workspace's `.nexus`.

`toml` makes a profile of a TOML text, `discovery` finds and reads files, `python` runs a Python file, and `registry`
resolves names: ready profiles, a program's, the user's, plugins', and last a workspace's, which is somebody else's text.
"""
