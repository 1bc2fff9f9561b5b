"""Credentials: secret values by name, from environment variables or the system's keyring, never from a plain file.

On disk there is only a list of names, with the location of each value and the result of the last check (`index`).
"""
