"""Document 000's blocks: who the agent is, its tools, the memory shared with the user, what is known of the user, the moment.

Each is a message of its own before the conversation, but for the identity, which is the system slot, and the moment,
which is part of the user's message (`nexus.assembly.formats`). All texts are those of `nexus.render.tagged`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, tzinfo

from nexus.render.tagged import blocks, entries, memory
from nexus.render.tagged.times import UNKNOWN_TIME, moment_time
from nexus.text.frames import escape
from nexus.types.block import Block, ContextWarning
from nexus.types.history import MEMORY_ORIGIN, MOMENT_ORIGIN, SESSION_SOURCE, SUMMARY_MARKER, PreviousTurns
from nexus.types.ledger_entries import StoredMessage
from nexus.types.message import ATTACHED, Image, Message, Note
from nexus.types.user_profile import friend_text, known_of
from nexus.workspace.prompts.core_identity import CORE_IDENTITY
from nexus.workspace.source_context import SourceContext, SourceResult
from nexus.workspace.sources.app_blocks import PREFIX, app_block_text
from nexus.workspace.sources.session_blocks import USER_PROFILE_SOURCE
from nexus.workspace.times import parse_zone

PINS_ORIGIN = "nexus:pins"
PINNED = "Kept word for word, because it was pinned:"
WHOLE = 1 << 40
"""Characters of a text that is not shortened."""

KEPT = 12
"""Entries that stay of the memory in parts when it has one more than it may have: so it begins anew only every few turns."""

_ROLES = {"user": "human", "assistant": "ai"}


def core_identity(_desk: SourceContext) -> SourceResult:
    """CORE_IDENTITY, the same for everybody."""
    return [Block("Persona", "core identity", CORE_IDENTITY, "nexus:core_identity", trust="system")], []


def tools_block(desk: SourceContext) -> SourceResult:
    """[CAPABILITIES]: the request's tools, or the placeholder. Raises BadTool."""
    text = blocks.capabilities_block(desk.request.tools)
    return [Block("Workspace", "capabilities", text, "nexus:capabilities", trust="tool")], []


def friends_block(desk: SourceContext) -> SourceResult:
    """[FRIENDS_INFO]: the user's profile, or the placeholder; a warning where a field is no text."""
    text, strange = known_of(desk.request.identity.user_profile)
    told = f"not shown: {strange} is no text, and has none as its content"
    warned = [ContextWarning(USER_PROFILE_SOURCE, told)] if strange else []
    shown = blocks.friends_block(text or friend_text({}))
    return [Block("Persona", "about the user", shown, USER_PROFILE_SOURCE, trust="user")], warned


def mood_block(desk: SourceContext) -> SourceResult:
    """[MOOD]: how the user seems to feel, where the application feeds it."""
    return _fed(desk, "mood", blocks.mood_block)


def constraints_block(desk: SourceContext) -> SourceResult:
    """[CONSTRAINTS]: limits of the present task, where the application feeds them."""
    return _fed(desk, "constraints", blocks.constraints_block)


def shared_memory(desk: SourceContext) -> SourceResult:
    """[SHARED_MEMORY count=N]: the newest entries before this turn, each shortened; and a summary's block before it."""
    zone, warned = _zone(desk)
    found = entries.memory_entries(rows_of(desk.previous_turns), zone, limit=desk.previous_turns.max_entries)
    text = memory.memory_block(found.entries)
    return [*_before(desk, zone), Block("Session", "shared memory", text, MEMORY_ORIGIN, trust="user")], warned


def shared_memory_parts(desk: SourceContext) -> SourceResult:
    """[SHARED_MEMORY], without a count and in parts of one message, so that its beginning stays when entries are added.

    When there are more entries than may be shown, the newest `KEPT` are.
    """
    zone, warned = _zone(desk)
    found = entries.memory_entries(rows_of(desk.previous_turns), zone, limit=kept_entries(desk.previous_turns))
    parts = memory.memory_parts(found.entries)
    made = [
        Block("Session", f"shared memory {at}", text, MEMORY_ORIGIN, trust="user", continues=at > 1)
        for at, text in enumerate(parts, 1)
    ]
    return [*_before(desk, zone), *made], warned


def this_moment(desk: SourceContext) -> SourceResult:
    """The time of the message in the user's zone, for [THIS_MOMENT]; the clock's where the event's is none."""
    zone, warned = _zone(desk)
    time = moment_time(desk.at_ms, zone)
    if time == UNKNOWN_TIME:
        told = f"{desk.at_ms} is no time in milliseconds that has a date: the clock's is shown"
        warned.append(ContextWarning(MOMENT_ORIGIN, told))
        clocks = (moment_time(at_ms, zone) for at_ms in (desk.clock_ms() if desk.clock_ms else 0, 0))
        time = next((one for one in clocks if one != UNKNOWN_TIME), time)
    return [Block("Event", "moment", time, MOMENT_ORIGIN, "current", "system")], warned


def kept_entries(earlier: PreviousTurns) -> int:
    """How many entries the memory in parts shows: all, or so few that the next turns only add to them."""
    count = len(entries.merge_rows(rows_of(earlier))[0])
    return earlier.max_entries if count <= earlier.max_entries else min(earlier.max_entries, KEPT)


def rows_of(earlier: PreviousTurns) -> Iterator[entries.DialogueRow]:
    """The messages as rows of the memory. All that an assistant says in one turn is one run, where none is named.

    A time that stands alone, and the line that says when a session began, are nobody's words: they are not told.
    """
    return _rows(earlier.rows)


def _rows(told: Iterable[tuple[int, StoredMessage]]) -> Iterator[entries.DialogueRow]:
    for turn, row in told:
        message = row.message
        calls = tuple(entries.DialogueCall(call.name, call.arguments) for call in message.calls())
        run = message.run_id or f"turn {turn}"
        role = "note" if _is_nobodys(message) else _ROLES.get(message.role, message.role)
        yield entries.DialogueRow(role, _words(row), run, message.at_ms or None, calls)


def _is_nobodys(message: Message) -> bool:
    """Whether a user's message is the session's first line, or a time and no more."""
    times = (isinstance(part, Note) and not part.origin.startswith(ATTACHED) for part in message.parts)
    return message.role == "user" and (message.source == SESSION_SOURCE or all(times))


def _words(row: StoredMessage) -> str:
    """What a message says, with a line for each of its images."""
    images = [f"[image: {part.media_type}]" for part in row.message.parts if isinstance(part, Image)]
    return "\n".join([*images, *([text] if (text := row.message.text()) else [])])


def _fed(desk: SourceContext, name: str, framed: Callable[[str], str]) -> SourceResult:
    text, over, warned = app_block_text(name, desk.request.blocks.get(name))
    if not text:
        return [], warned
    return [Block("Event", name, framed(text), f"{PREFIX}{name}", trust="tool", omitted_chars=over)], warned


def _before(desk: SourceContext, zone: tzinfo) -> list[Block]:
    """What stands before the memory: pinned messages, whole, and what a compaction made of those before the memory's."""
    found: list[Block] = []
    kept = entries.memory_entries(
        _rows(desk.previous_turns.pinned), zone, limit=len(desk.previous_turns.pinned), most_chars=WHOLE
    )
    if kept.entries:
        text = "\n".join([SUMMARY_MARKER, PINNED, *map(memory.entry_text, kept.entries)])
        found.append(Block("Session", "pinned messages", text, PINS_ORIGIN, trust="user"))
    if desk.previous_turns.summary:
        text = f"{SUMMARY_MARKER}\n{escape(desk.previous_turns.summary)}"
        found.append(Block("Session", "summary", text, "nexus:summary", trust="user"))
    return found


def _zone(desk: SourceContext) -> tuple[tzinfo, list[ContextWarning]]:
    if not desk.timezone:
        return UTC, []
    try:
        return parse_zone(desk.timezone)[1], []
    except ValueError as error:
        return UTC, [ContextWarning(MOMENT_ORIGIN, f"{error}: UTC is shown")]
