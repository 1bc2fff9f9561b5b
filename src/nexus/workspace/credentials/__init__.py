"""Credentials: secret values by name, from variables of the environment or the system's keyring, never from a plain file.

What is on disk is a list of names, with where each value is and how the last check went (`index`).
"""
