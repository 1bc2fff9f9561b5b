"""Built-in tools of an agent: files, skills and memory of its workspace, and the history of its session.

`builtin_tools` binds them to one turn (`context.ToolContext`). `calls.run_call` checks the policy before it runs one. The
only file that tools change is the memory's, and none runs programs.
"""

from __future__ import annotations

from nexus.agents.tools.context import ToolContext
from nexus.agents.tools.files import FileTools
from nexus.agents.tools.history import HistoryTools
from nexus.agents.tools.memory import MemoryTools, SkillTools
from nexus.tools import ToolRegistry

__all__ = ["ToolContext", "builtin_tools"]


def builtin_tools(context: ToolContext) -> ToolRegistry:
    """Return the tools of a turn; without a workspace only `recall` and `compact`.

    Their categories are `files`, `skills`, `memory` and `history`.
    """
    registry = ToolRegistry()
    if context.root is not None:
        files = FileTools(context.root, context.engine)
        for function in (files.read_file, files.list_files, files.search_files):
            registry.register(function, category="files", repeatable=True)
        registry.register(SkillTools(context).use_skill, category="skills", repeatable=True)
        memory = MemoryTools(context)
        for function in (memory.search_memory, memory.add_memory, memory.forget_memory):
            registry.register(function, category="memory", repeatable=True)
    history = HistoryTools(context)
    registry.register(history.recall, category="history", repeatable=True)
    if context.request_compaction is not None:
        registry.register(history.compact, category="history", repeatable=True)
    return registry
