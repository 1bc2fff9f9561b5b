"""Tools for the skills and the long-term memory of a workspace."""

from __future__ import annotations

from contextlib import suppress

from nexus.agents.tools.context import ToolContext
from nexus.errors import BadFact, MemoryBusy, NexusError, NotFound, ToolCallFailed
from nexus.ledger.search_text import parse_query
from nexus.text.one_line import collapse_whitespace
from nexus.workspace.memory.facts import SECTION
from nexus.workspace.memory.notebook import Notebook
from nexus.workspace.skills.discovery import record_use
from nexus.workspace.skills.guide import all_skills, skill_guide

MATCHES = 20
MATCH_CHARS = 1_000
LISTED = 50


class SkillTools:
    """The tool `use_skill` for one turn."""

    def __init__(self, context: ToolContext) -> None:
        self._context = context

    async def use_skill(self, name: str) -> str:
        """Load the full instructions of a skill. Do that before you use it.

        Args:
            name: Name of the skill, as the list of skills has it.
        """
        text: str = await self._context.run(self._guide, name)
        return text

    def _guide(self, name: str) -> str:
        context = self._context
        try:
            guide = skill_guide(context.engine.workspace_context, name)
        except NotFound as error:
            if error.code != "no_such_skill":
                raise
            names = ", ".join(skill.name for skill in all_skills(context.engine.workspace_context).skills[:LISTED])
            raise ToolCallFailed(f"skill {name!r} not found (available: {names or 'none'})") from error
        if context.root is not None:
            with suppress(OSError):  # for people and the list of capabilities only
                record_use(context.root, guide.name, context.engine.clock_ms())
        text = guide.guide or f"The skill {guide.name} has no instructions."
        return "\n".join([text, *(["\n---", *guide.notes()] if guide.notes() else [])])


class MemoryTools:
    """The tools `search_memory`, `add_memory` and `forget_memory` for one turn."""

    def __init__(self, context: ToolContext) -> None:
        self._context = context

    def search_memory(self, query: str) -> str:
        """Search the long-term memory: facts, and the log of earlier and forgotten ones.

        Args:
            query: Words to search for; words in double quotes are a phrase.
        """
        if not parse_query(query):
            raise ToolCallFailed("the query has no words (search for words of the fact)")
        matches = self._notebook().search(query, MATCHES)
        if not matches:
            return "Nothing in memory has these words."
        lines: list[str] = []
        for match in matches:
            kind = "log entry"
            if match.section or "HISTORY" not in match.origin:
                kind = "fact"
            label = ", ".join(part for part in (match.section, match.at) if part)
            text = collapse_whitespace(match.text)
            if len(text) <= MATCH_CHARS:
                short = text
            else:
                short = f"{text[:MATCH_CHARS]}…"
            lines.append(f"{kind} {match.number}{f' ({label})' if label else ''}: {short}")
        return "\n".join(lines)

    def add_memory(self, fact: str, section: str = SECTION) -> str:
        """Remember a fact for later conversations: a preference, a decision, how something works here.

        Add only lasting facts that the user would want you to know again. Never add passwords or keys.

        Args:
            fact: The fact, in one or two sentences that are clear without this conversation.
            section: Heading under which it is kept.
        """
        try:
            added = self._notebook().add(fact, section=section)
        except (BadFact, MemoryBusy) as error:
            if isinstance(error, BadFact) and error.kinds:
                kinds = ", ".join(error.kinds)
                why = f"the text seems to contain a secret ({kinds}); leave it out"
                raise ToolCallFailed(f"not added: {why}") from error
            raise ToolCallFailed(f"not added: {error}") from error
        return "\n".join([f"Added fact {added.number} to {added.file}.", *(f"[{text}]" for text in added.warnings)])

    def forget_memory(self, fact: str) -> str:
        """Remove a fact that is wrong or outdated from the long-term memory. The log keeps it.

        Args:
            fact: Its number, or its exact text, as search_memory shows it.
        """
        try:
            forgotten = self._notebook().forget(fact)
        except NotFound as error:
            if error.code != "no_such_fact":
                raise
            numbers = ", ".join(map(str, error.numbers))
            reason = "no fact has this number or text"
            if numbers:
                reason = f"several facts match: {numbers}; use a number"
            raise ToolCallFailed(f"nothing was forgotten: {reason} (search_memory shows numbers and texts)") from error
        return f"Forgotten: {collapse_whitespace(forgotten.text)}"

    def _notebook(self) -> Notebook:
        engine = self._context.engine
        if self._context.root is None:
            raise ToolCallFailed("there is no workspace, and so no memory")
        try:
            return Notebook(
                self._context.root,
                timezone=engine.settings.timezone if isinstance(engine.settings.timezone, str) else "",
                clock_ms=engine.clock_ms,
                file_chars=engine.workspace_context.config.instructions.file_chars,
            )
        except NexusError as error:
            raise ToolCallFailed(str(error)) from error
