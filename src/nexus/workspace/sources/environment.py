"""What the agent can do here, for the system slot: document 002's "Nexus Environment".

The form, read off the document's example: a line for each category, categories and names in order of their letters.
`Category: ` is followed by groups, joined by ` | `; a group has the names of one state joined by `, `, a space and one
mark: `✅` active, `⭐ (ready)`, `🔧 (needs …)` with a group for each need, `❌ (broken)`, in this order. The credentials are
`N configured`, and ` | M broken (names)` if there are such, which are among the N. A section without content is left out,
and so is the whole block.
"""

from __future__ import annotations

from nexus.types.block import Block
from nexus.types.environment import ORIGIN, Environment, Group
from nexus.workspace.source_context import SourceContext, SourceResult

INTRODUCTION = """## Nexus Environment

You have the `nexus` CLI for skill discovery and credential management."""

USING_SKILLS = """### Using Skills
Run `nexus skill use <name>` to get the full guide for any capability."""

_MARKS = {"active": "✅", "ready": "⭐ (ready)", "setup": "🔧", "broken": "❌ (broken)"}


def environment(desk: SourceContext) -> SourceResult:
    """What works here, of that what the request's capabilities name; nothing where nobody looked, or nothing was found."""
    found, names = desk.environment.environment, desk.request.permissions.capabilities
    if found is None:
        return [], []
    text = environment_text(found if names is None else found.scoped(names))
    blocks = [Block("Workspace", "environment", text, ORIGIN, trust="system")] if text else []
    return blocks, list(found.warnings)


def environment_text(found: Environment) -> str:
    """The block's text; empty if there is nothing to say."""
    sections: list[str] = []
    if found.capabilities:
        sections += ["\n".join(["### Capabilities", *capability_lines(found)]), USING_SKILLS]
    if found.credentials:
        sections.append(f"### Credentials\n{credentials_line(found)}")
    return "\n\n".join([INTRODUCTION, *sections]) if sections else ""


def capability_lines(found: Environment, *, plain: bool = False) -> list[str]:
    """A line for each category; `plain` has the states as ASCII words in brackets instead of marks."""
    lines: dict[str, list[str]] = {}
    for group in found.groups():
        shown = f"{', '.join(group.names)} {_mark(group, plain=plain)}"
        lines.setdefault(group.category, []).append(shown)
    return [f"{category}: {' | '.join(groups)}" for category, groups in lines.items()]


def credentials_line(found: Environment) -> str:
    """How many are configured, and which of them are broken."""
    broken = f" | {len(found.broken)} broken ({', '.join(sorted(found.broken))})" if found.broken else ""
    return f"{found.credentials} configured{broken}"


def _mark(group: Group, *, plain: bool) -> str:
    if plain:
        return f"[{group.needs or group.state}]"
    return f"{_MARKS[group.state]} ({group.needs})" if group.needs else _MARKS[group.state]
