"""How a worker's prompt begins: what it is, its task, its rules (document 002, "Worker Agent System Prompt")."""

from __future__ import annotations

from nexus.types.block import Block, Warned
from nexus.workspace.source_context import Desk, Gathered

ORIGIN = "nexus:subagent"

_HEAD = """\
# Subagent Context

You are a **worker agent** spawned for a specific task."""

_TASK = """\
## Your Task
{task}"""

_RULES = """\
## Rules
1. Stay focused — do your assigned task, nothing else
2. Complete the task — your final message reports back to the manager
3. Don't initiate — no proactive actions, no side quests
4. Be ephemeral — you may be terminated after completion

## What You DON'T Do
- NO user conversations (manager's job)
- NO external messages unless explicitly tasked
- NO persistent state changes outside your task scope"""


def subagent(desk: Desk) -> Gathered:
    """A worker's opening, with its task; for other roles nothing. A worker without a task is worth a warning."""
    if desk.request.routing.role != "worker":
        return [], []
    task = desk.request.routing.task.strip("\n")
    warned = [] if task.strip() else [Warned(ORIGIN, "this worker has no task: name one (`task=`), or another role")]
    return [Block("Workspace", "subagent", instructions(task), ORIGIN, trust="user")], warned


def instructions(task: str) -> str:
    """The text with a task, or without the part on it where there is none."""
    parts = (_HEAD, _TASK.replace("{task}", task) if task.strip() else "", _RULES)
    return "\n\n".join(filter(None, parts))
