"""Custom profiles as files: `profiles/NAME.toml` or `NAME.py` in the user's folder, `NAME.toml` in a workspace's `.nexus`.

`toml` parses and builds profiles, `python` runs a Python file, and `registry` finds and reads files and
resolves names: a program's profiles, the built-in ones, the user's, plugins', and last a workspace's, which are
untrusted.
"""
