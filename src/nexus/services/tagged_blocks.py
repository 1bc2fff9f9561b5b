"""Document 000's blocks: identity, tools, the memory shared with the user, the user's profile, the moment.

Each is a message before the conversation, except the identity, which is the system slot, and the moment, which is part
of the user's message (`nexus.assembly.formats`). `nexus.services.tagged` writes their texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, tzinfo
from types import MappingProxyType

from nexus.services import tagged
from nexus.services.tagged import UNKNOWN_TIME, moment_time
from nexus.text.frames import escape
from nexus.types.block import Block, ContextWarning
from nexus.types.history import SESSION_SOURCE, SUMMARY_MARKER, Memory, PreviousTurns
from nexus.types.ledger_entries import StoredMessage
from nexus.types.message import ATTACHED, Image, Message, Note
from nexus.types.user_profile import friend_text
from nexus.workspace.prompts import prompt_text
from nexus.workspace.source_context import SourceContext, SourceResult
from nexus.workspace.sources.event_blocks import PREFIX, app_block_text
from nexus.workspace.sources.registry import SourceSpec
from nexus.workspace.sources.session_blocks import USER_PROFILE_SOURCE, profile_text
from nexus.workspace.times import parse_zone

# Document 000's system message: the same bytes for every user and call, so that providers cache it: no name, no time.
CORE_IDENTITY = prompt_text("core_identity.md", "nexus.services")

MEMORY = Memory("shared memory", "nexus:shared_memory")
PROVIDED_MEMORY = "provided memory"
"""Name of the memory's block if the application provides it: it reports no turns of the ledger."""

MOMENT_SOURCE = "nexus:this_moment"
"""Source of the note with a message's time."""
PINS_ORIGIN = "nexus:pins"
PINNED = "Kept word for word, because it was pinned:"
UNLIMITED_CHARS = 1 << 40

RESTART_ENTRIES = 12
"""Number of newest entries that remain when the memory in parts exceeds its limit.

Keeping far fewer than the limit lets later turns append for a while, so that the provider's prompt cache stays valid.
"""

OPENINGS: Mapping[str, str] = MappingProxyType(
    {
        "nexus:capabilities": "[CAPABILITIES]\n",
        MEMORY.source: "[SHARED_MEMORY",
        PINS_ORIGIN: f"{SUMMARY_MARKER}\n",
        "nexus:summary": f"{SUMMARY_MARKER}\n",
        USER_PROFILE_SOURCE: "[FRIENDS_INFO]\n",
        f"{PREFIX}mood": "[MOOD]\n",
        f"{PREFIX}constraints": "[CONSTRAINTS]\n",
    }
)
"""Opening tag by source. These blocks are escaped here."""

_ROLES = {"user": "human", "assistant": "ai"}


def core_identity(context: SourceContext) -> SourceResult:
    """Return CORE_IDENTITY, the same for every call; another text if the application provides it."""
    text = _provided(context, "core_identity") or CORE_IDENTITY
    return [Block("Persona", "core identity", text, "nexus:core_identity", trust="system")], []


def tools_block(context: SourceContext) -> SourceResult:
    """Return [CAPABILITIES]: the application's text, else the request's tools, or the placeholder. Raises BadTool."""
    text = _provided(context, "tools")
    if text:
        text = tagged.capabilities_text_block(text)
    else:
        text = tagged.capabilities_block(context.request.tools)
    return [Block("Workspace", "capabilities", text, "nexus:capabilities", trust="tool")], []


def friends_block(context: SourceContext) -> SourceResult:
    """Return [FRIENDS_INFO]: the application's text, else the user's profile, or the placeholder."""
    provided = _provided(context, "friends")
    text, warnings = (provided, []) if provided else profile_text(context)
    text = tagged.friends_block(text or friend_text({}))
    return [Block("Persona", "about the user", text, USER_PROFILE_SOURCE, trust="user")], warnings


def mood_block(context: SourceContext) -> SourceResult:
    """Return [MOOD]: how the user seems to feel, if the application provides it."""
    return _app_block(context, "mood", tagged.mood_block)


def constraints_block(context: SourceContext) -> SourceResult:
    """Return [CONSTRAINTS]: limits of the present task, if the application provides them."""
    return _app_block(context, "constraints", tagged.constraints_block)


def shared_memory(context: SourceContext) -> SourceResult:
    """Return [SHARED_MEMORY count=N]: the newest entries before this turn, truncated, after pins and the summary.

    If the application provides the block, it is shown as it is.
    """
    if provided := _provided(context, "shared_memory"):
        return [Block("Session", PROVIDED_MEMORY, provided, MEMORY.source, trust="user")], []
    turns = context.previous_turns
    zone, warnings = _zone(context)
    text = tagged.memory_block(tagged.memory_entries(dialogue_rows(turns), zone, limit=turns.max_entries).entries)
    return [
        *_summary_blocks(context, zone),
        Block("Session", "shared memory", text, MEMORY.source, trust="user"),
    ], warnings


def shared_memory_parts(context: SourceContext) -> SourceResult:
    """Return [SHARED_MEMORY] without a count, in parts of one message, so that added entries change no earlier part."""
    zone, warnings = _zone(context)
    turns = context.previous_turns
    newest = tagged.memory_entries(dialogue_rows(turns), zone, limit=memory_entry_limit(turns)).entries
    parts = [
        Block("Session", f"shared memory {number}", text, MEMORY.source, trust="user", continues=number > 1)
        for number, text in enumerate(tagged.memory_parts(newest), 1)
    ]
    return [*_summary_blocks(context, zone), *parts], warnings


def this_moment(context: SourceContext) -> SourceResult:
    """Return the time of the message in the user's zone for [THIS_MOMENT]; the clock's time if the event's is invalid."""
    zone, warnings = _zone(context)
    time = moment_time(context.at_ms, zone)
    if time == UNKNOWN_TIME:
        text = f"{context.at_ms} is not a valid time in milliseconds; the clock's time is shown"
        warnings.append(ContextWarning(MOMENT_SOURCE, text))
        fallbacks = (moment_time(at_ms, zone) for at_ms in (context.clock_ms() if context.clock_ms else 0, 0))
        time = next((text for text in fallbacks if text != UNKNOWN_TIME), time)
    return [Block("Event", "moment", time, MOMENT_SOURCE, "current", "system")], warnings


def memory_entry_limit(turns: PreviousTurns) -> int:
    """Return the number of entries that the memory in parts shows: all, or so few that later turns only append."""
    count = len(tagged.merge_rows(dialogue_rows(turns))[0])
    if count <= turns.max_entries:
        return turns.max_entries
    return min(turns.max_entries, RESTART_ENTRIES)


def dialogue_rows(turns: PreviousTurns) -> Iterator[tagged.DialogueRow]:
    """Return the messages as rows of the memory.

    An assistant's messages of one turn form one run unless they name another. A user's message that is the session's
    header or only a time has the role `note`, which the memory does not show.
    """
    return _rows(turns.rows)


def message_row(message: Message, run_id: str) -> tagged.DialogueRow:
    """Return a message as a row of the memory, with its own run or else `run_id`; see `dialogue_rows` for the roles."""
    calls = tuple(tagged.DialogueCall(call.name, call.arguments) for call in message.calls())
    notes = (isinstance(part, Note) and not part.origin.startswith(ATTACHED) for part in message.parts)
    is_note = message.role == "user" and (message.source == SESSION_SOURCE or all(notes))
    if is_note:
        role = "note"
    else:
        role = _ROLES.get(message.role, message.role)
    images = [f"[image: {part.media_type}]" for part in message.parts if isinstance(part, Image)]
    text = message.text()
    words = "\n".join([*images, *([text] if text else [])])
    return tagged.DialogueRow(role, words, message.run_id or run_id, message.at_ms or None, calls)


def _rows(messages: Iterable[tuple[int, StoredMessage]]) -> Iterator[tagged.DialogueRow]:
    return (message_row(row.message, f"turn {turn}") for turn, row in messages)


def _provided(context: SourceContext, name: str) -> str:
    """Return the application's text for a block; "" for none."""
    text: object = context.request.settings.blocks.get(name)
    if isinstance(text, str) and text.strip():
        return text
    return ""


def _app_block(context: SourceContext, name: str, frame: Callable[[str], str]) -> SourceResult:
    text, omitted, warnings = app_block_text(name, context.request.settings.blocks.get(name))
    if not text:
        return [], warnings
    return [Block("Event", name, frame(text), f"{PREFIX}{name}", trust="tool", omitted_chars=omitted)], warnings


def _summary_blocks(context: SourceContext, zone: tzinfo) -> list[Block]:
    """Return the blocks before the memory: pinned messages, untruncated, and the summary of older messages."""
    result: list[Block] = []
    turns = context.previous_turns
    pins = tagged.memory_entries(_rows(turns.pinned), zone, limit=len(turns.pinned), most_chars=UNLIMITED_CHARS)
    if pins.entries:
        text = "\n".join([SUMMARY_MARKER, PINNED, *map(tagged.entry_text, pins.entries)])
        result.append(Block("Session", "pinned messages", text, PINS_ORIGIN, trust="user"))
    if turns.summary:
        text = f"{SUMMARY_MARKER}\n{escape(turns.summary)}"
        result.append(Block("Session", "summary", text, "nexus:summary", trust="user"))
    return result


def _zone(context: SourceContext) -> tuple[tzinfo, list[ContextWarning]]:
    if not context.timezone:
        return UTC, []
    try:
        return parse_zone(context.timezone)[1], []
    except ValueError as error:
        return UTC, [ContextWarning(MOMENT_SOURCE, f"{error}; UTC is shown")]


SPECS: dict[str, SourceSpec] = {
    spec.name: spec
    for spec in (
        SourceSpec("constraints_block", constraints_block, "turn"),
        SourceSpec("core_identity", core_identity, "never"),
        SourceSpec("friends_block", friends_block, "session"),
        SourceSpec("mood_block", mood_block, "turn"),
        SourceSpec("shared_memory", shared_memory, "turn"),
        # Within a session it only grows, except when its oldest entries are dropped.
        SourceSpec("shared_memory_parts", shared_memory_parts, "session"),
        SourceSpec("this_moment", this_moment, "turn"),
        SourceSpec("tools_block", tools_block, "session"),
    )
}
"""The sources of these blocks by name."""
