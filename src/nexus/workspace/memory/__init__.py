"""Long-term memory: MEMORY.md, which goes into contexts, and the append-only log HISTORY.md next to it.

`nexus.workspace.sources.memory` reads it for contexts.
"""
