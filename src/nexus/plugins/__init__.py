"""Hooks: other packages add sources, data for the moment, tools and profiles, and can harm no call.

A package names its plugin under the entry point group `nexus`; a program may pass plugins to `nexus.open(plugins=)`.
They are found and called through pluggy, which is imported when there is a plugin. A hook that fails, hangs or returns
something else is reported and left out.
"""
