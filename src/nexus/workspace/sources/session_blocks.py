"""Sources that describe the session: tools, friends, messaging, a worker's task, the environment.

Document 002's "Nexus Environment" block has a line for each category, categories and names sorted. `Category: ` is followed
by groups joined by ` | `: the names of one state and need joined by `, `, and a mark, `✅` active, `⭐ (ready)`,
`🔧 (needs …)`, `❌ (broken)`, in this order. Sections without content are omitted, and so is an empty block.
"""

from __future__ import annotations

import os

from msgspec.structs import replace

from nexus.policy.values import MESSAGING
from nexus.render.tool_list import capabilities_text
from nexus.text.one_line import collapse_whitespace
from nexus.types.block import Block, ContextWarning, block_key
from nexus.types.environment import ORIGIN, Environment
from nexus.types.tool_definition import offers_shell, tool_rows
from nexus.types.user_profile import FRIEND_HEADING, user_profile_text
from nexus.workspace.environment.machine import environment_section
from nexus.workspace.prompts import prompt_text
from nexus.workspace.source_context import SourceContext, SourceResult
from nexus.workspace.times import time_line


def capabilities(context: SourceContext) -> SourceResult:
    """Return names, descriptions and parameters of the tools, sorted by name; no block without tools. Raises BadTool."""
    tools = context.request.tools
    if not tools:
        return [], []
    return [Block("Workspace", "capabilities", capabilities_text(tools), "nexus:capabilities", trust="tool")], []


USER_PROFILE_SOURCE = "nexus:user_profile"


def profile_text(context: SourceContext) -> tuple[str, list[ContextWarning]]:
    """Return the user's profile as text, and a warning about a field that is not text."""
    text, invalid = user_profile_text(context.request.settings.user_profile)
    return text, [ContextWarning(USER_PROFILE_SOURCE, f"omitted: field '{invalid}' is not text")] if invalid else []


def friends(context: SourceContext) -> SourceResult:
    """Return the user's profile under `About this friend:`; no block for an empty one."""
    text, warnings = profile_text(context)
    if not text:
        return [], warnings
    text = f"{FRIEND_HEADING}\n\n{text}"
    return [Block("Persona", "about the user", text, USER_PROFILE_SOURCE, trust="user")], warnings


MESSAGING_SOURCE = "nexus:messaging"


def messaging(context: SourceContext) -> SourceResult:
    """Return the messaging rules for an agent that speaks on a platform: a manager, or a unified agent.

    A unified agent does so if the event came from a platform or the tools send messages, and stays so for the session,
    because the system slot must not change. Workers talk to no user.
    """
    request = context.request
    block = Block("Workspace", "messaging", "", MESSAGING_SOURCE, trust="system")
    role = request.settings.role
    event = request.event
    if role == "worker" or (role == "unified" and context.files is None):
        return [], []
    if role == "unified" and not (event.channel or event.platform or event.platform_actions):
        sends = any(tool is not None and tool.category == MESSAGING for tool, _ in tool_rows(request.tools))
        if not sends and block_key(block) not in context.last_blocks:
            return [], []
    return [replace(block, text=prompt_text("messaging.md"))], []


SUBAGENT_SOURCE = "nexus:subagent"


def subagent(context: SourceContext) -> SourceResult:
    """Return a worker's opening with its task; no block for other roles. A missing task is a warning."""
    if context.request.settings.role != "worker":
        return [], []
    task = context.request.settings.task.strip("\n")
    warning = ContextWarning(SUBAGENT_SOURCE, "worker has no task (set `task=`, or use another role)")
    block = Block("Workspace", "subagent", subagent_instructions(task), SUBAGENT_SOURCE, trust="user")
    return [block], [] if task.strip() else [warning]


def subagent_instructions(task: str) -> str:
    """Return a worker's opening, without the section on the task if it is empty."""
    before, section, after = prompt_text("subagent.md").partition("## Your Task\n{task}\n\n")
    return f"{before}{section.replace('{task}', task) if task.strip() else ''}{after}"


def host(context: SourceContext) -> SourceResult:
    """Return one line for each fact about the machine."""
    facts = {name: collapse_whitespace(value) for name, value in context.workspace.host.items()}
    lines = [f"{name}: {value}" for name, value in facts.items() if value]
    if not lines:
        return [], []
    text = "\n".join(["# Runtime", "", *lines])
    return [Block("Workspace", "host", text, "nexus:host", trust="system")], []


SURROUNDINGS_SOURCE = "nexus:surroundings"


def surroundings(context: SourceContext) -> SourceResult:
    """Return the `# Environment` block with the workspace as working directory; no block without a workspace."""
    if context.files is None:
        return [], []
    shows_time = context.clock == "system"
    line, warnings = time_line(context, SURROUNDINGS_SOURCE) if shows_time else ("", [])
    text = environment_section(str(context.files.root), context.request.settings.run_mode, os.environ, line)
    return [Block("Workspace", "surroundings", text, SURROUNDINGS_SOURCE, trust="system")], warnings


INTRODUCTION = """## Nexus Environment

You have the `nexus` CLI for skill discovery and credential management."""

USING_SKILLS = """### Using Skills
Run `nexus skill use <name>` to get the full guide for any capability."""

_MARKS = {"active": "✅", "ready": "⭐ (ready)", "setup": "🔧", "broken": "❌ (broken)"}


def environment(context: SourceContext) -> SourceResult:
    """Return the environment survey, restricted to the capabilities that the request names.

    There is no block without a survey, or without a shell tool, in which the agent would use them.
    """
    survey = context.environment.environment
    names = context.request.settings.capabilities
    if survey is None or not offers_shell(context.request.tools):
        return [], []
    text = environment_text(survey if names is None else survey.scoped(names))
    blocks = [Block("Workspace", "environment", text, ORIGIN, trust="system")] if text else []
    return blocks, list(survey.warnings)


def environment_text(survey: Environment) -> str:
    """Return the block's text; "" without capabilities and credentials."""
    sections: list[str] = []
    if survey.capabilities:
        sections += ["\n".join(["### Capabilities", *capability_lines(survey)]), USING_SKILLS]
    if survey.credentials:
        sections.append(f"### Credentials\n{credentials_line(survey)}")
    if sections:
        return "\n\n".join([INTRODUCTION, *sections])
    return ""


def capability_lines(survey: Environment, *, plain: bool = False) -> list[str]:
    """Return a line for each category; `plain` has the states as ASCII words in brackets instead of marks."""
    lines: dict[str, list[str]] = {}
    for group in survey.groups():
        if group.needs:
            mark = f"{_MARKS[group.state]} ({group.needs})"
        else:
            mark = _MARKS[group.state]
        mark = f"[{group.needs or group.state}]" if plain else mark
        lines.setdefault(group.category, []).append(f"{', '.join(group.names)} {mark}")
    return [f"{category}: {' | '.join(groups)}" for category, groups in lines.items()]


def credentials_line(survey: Environment) -> str:
    """Return `N configured`, and ` | M broken (names)` if there are broken ones, which are among the N."""
    broken = ""
    if survey.broken:
        broken = f" | {len(survey.broken)} broken ({', '.join(sorted(survey.broken))})"
    return f"{survey.credentials} configured{broken}"
