"""Profiles of one's own, as files: `profiles/NAME.toml` or `NAME.py` in the user's folder, `NAME.toml` in a workspace's `.nexus`.

`draft` makes a profile of a TOML text, `files` finds and reads files, `program` runs a Python file, and `known` resolves
names: ready profiles, a program's, the user's, plugins', and last a workspace's, which is somebody else's text.
"""
