"""Plugins: other packages add sources, event metadata, tools and profiles through hooks.

A package names its plugin under the entry point group `nexus`; a program may pass plugins to `nexus.open(plugins=)`.
They are called through pluggy, which is imported only if there is a plugin. A hook that fails, hangs or returns an
invalid value is reported and omitted; the call continues without it.
"""
