"""Writing long-term memory: MEMORY.md, which goes into contexts, and the append-only log HISTORY.md beside it.

What the model is shown of it is read in `nexus.workspace.sources.file_blocks`; `nexus.compat.nanobot.agent.memory` is document 003's door.
"""
