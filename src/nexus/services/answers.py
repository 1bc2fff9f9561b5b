"""Use of a ContextBuilder's answer by an orchestrator, whose engine assembles, records and replays the same bytes.

The engine assembles the turn from the ledger. A block of the answer that differs from the engine's own block becomes an
input of the turn (`blocks=` of `Engine.assemble`), which its manifest records. The result has to be the answer: an answer
that cannot be assembled is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, cast

from msgspec import Struct
from msgspec.structs import replace

from nexus.context import AssembledContext
from nexus.engine import Engine
from nexus.engine.overflow_recovery import despite_learned_limit
from nexus.engine.turn import Turn
from nexus.errors import BadReference, UnreadableFile
from nexus.ledger.recorded_calls import last_call
from nexus.services.tagged import (
    memory_block,
    parse_capabilities,
    parse_constraints,
    parse_friends,
    parse_memory,
    parse_moment,
    parse_mood,
)
from nexus.services.tagged_blocks import PROVIDED_MEMORY
from nexus.types.history import SUMMARY_MARKER
from nexus.types.settings import CallArguments
from nexus.types.tool_definition import canonical, iter_definitions


def _unchanged(text: str) -> str:
    return text


def _checked_memory(text: str) -> str:
    entries = parse_memory(text)
    if text not in (memory_block(entries), memory_block(entries, count=False)):
        raise _refused("its block [SHARED_MEMORY] has another form than nexus.services.tagged gives it")
    return text


_TAGS: Mapping[str, tuple[str, Callable[[str], str]]] = {
    "tools": ("[CAPABILITIES]\n", parse_capabilities),
    "summary": (f"{SUMMARY_MARKER}\n", _unchanged),
    "shared_memory": ("[SHARED_MEMORY", _checked_memory),
    "friends": ("[FRIENDS_INFO]\n", parse_friends),
    "mood": ("[MOOD]\n", parse_mood),
    "constraints": ("[CONSTRAINTS]\n", parse_constraints),
}
"""Blocks before the conversation: name of the block in `Engine.assemble`, its tag, and the parser of its text."""


class BuiltContext(Struct, frozen=True):
    """The part of a ContextBuilder's response that is used."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] = []
    memory: Literal["", "ledger"] = ""
    """`ledger` if [SHARED_MEMORY] reports the session of the ledger, which the engine does itself."""


class _Parts(Struct, frozen=True):
    """The messages of a tagged dialogue: system text, blocks in order, and the texts of the conversation."""

    system: str
    blocks: tuple[tuple[str, str], ...]
    conversation: tuple[str, ...]


def recorded_answer(nx: Engine, turn: Turn) -> CallArguments | None:
    """Return what an earlier call of a turn used of an answer, as arguments of `Engine.assemble`; None without a call.

    The process that made that call may have stopped. A memory of the ledger is not repeated: it may be compacted since.
    """
    store = nx.ledger.store
    with store.snapshot():
        thread = nx.ledger.thread(turn.session)
        newest = last_call(store, thread)
        if newest is None:
            return None
        (entry,) = store.entries(thread, newest.seq - 1, newest.seq)
        if entry.turn < turn.number:
            return None
    try:
        recorded = nx.replay(turn.session, turn.number, unverified=True)
    except BadReference:
        return None
    wanted = _parts(recorded.to_openai()["messages"])
    if not any(block.name == PROVIDED_MEMORY for block in recorded.provenance.blocks):
        wanted = replace(wanted, blocks=tuple(item for item in wanted.blocks if item[0] != "shared_memory"))
    definitions = [tool.definition() for tool in recorded.tools]
    return _options(turn, assemble_turn(nx, turn, {}), BuiltContext([], definitions), wanted)


def assemble_answer(nx: Engine, turn: Turn, unanswered: AssembledContext, answer: BuiltContext) -> AssembledContext:
    """Return the context of a turn's first call with the texts and tools of an answer; `unanswered` is the one without.

    Raises UnreadableFile if the engine cannot assemble what the answer says.
    """
    wanted = _parts(answer.messages)
    ctx = assemble_turn(nx, turn, _options(turn, unanswered, answer, wanted))
    _check_same(wanted, _parts(ctx.to_openai()["messages"]), answer.memory)
    return ctx


def assemble_turn(nx: Engine, turn: Turn, changes: CallArguments) -> AssembledContext:
    """Return the context of a turn's next call, without the model's learned limit if it leaves too little."""
    model = changes.get("model") or turn.request.settings.model
    return despite_learned_limit(nx, model, partial(turn.assemble, **changes))


def own_tools(ctx: AssembledContext) -> list[dict[str, Any]]:
    """Return the definitions of the tools that a context offers."""
    return [*(ctx.provenance.tool_definitions or [tool.definition() for tool in ctx.tools])]


def _options(turn: Turn, unanswered: AssembledContext, answer: BuiltContext, wanted: _Parts) -> CallArguments:
    """Return the parts of an answer that differ from the engine's own, as arguments of `Engine.assemble`."""
    options: CallArguments = {}
    tools = canonical(answer.tools)
    own_specs = {tool.name: tool for tool in unanswered.tools}
    if unknown := [tool.name for tool in tools if tool.name not in own_specs]:
        raise _refused(f"it offers tools that this run does not have: {', '.join(unknown)}")
    if tools != unanswered.tools:
        definitions = {
            spec.name: dict(item) for item in iter_definitions(own_tools(unanswered)) for spec in canonical([item])
        }
        options["tools"] = [
            definitions.get(tool.name, {}) if tool == own_specs[tool.name] else tool.definition() for tool in tools
        ]
    parts = _parts(unanswered.to_openai()["messages"])
    own_blocks = dict(parts.blocks)
    if answer.memory:
        own_names = ("summary", "shared_memory")
    else:
        own_names = ("summary",)
    blocks = {
        name: _TAGS[name][1](text)
        for name, text in wanted.blocks
        if name not in own_names and text != own_blocks.get(name)
    }
    if wanted.system != parts.system:
        blocks["core_identity"] = wanted.system
    if blocks:
        options["blocks"] = {**turn.request.settings.blocks, **blocks}
    return options


def _parts(messages: Sequence[Mapping[str, Any]]) -> _Parts:
    """Split messages of OpenAI's format. Raises UnreadableFile for any other form than the tagged dialogue."""
    texts = [_text_of(message.get("content")) for message in messages]
    if len(texts) < 2 or messages[0].get("role") not in ("system", "developer"):
        raise _refused("its messages are not a system message and the blocks of the tagged dialogue")
    blocks: list[tuple[str, str]] = []
    for message, text in zip(messages[1:], texts[1:], strict=True):
        name = next((name for name, (tag, _) in _TAGS.items() if text.startswith(tag)), "")
        if not name or message.get("role") != "user":
            break
        blocks.append((name, text))
    return _Parts(texts[0], tuple(blocks), tuple(texts[1 + len(blocks) :]))


def _text_of(content: object) -> str:
    if not isinstance(content, (list, tuple)):
        if isinstance(content, str):
            return content
        return ""
    parts = cast("Sequence[object]", content)
    texts = (cast("Mapping[str, Any]", part).get("text") for part in parts if isinstance(part, Mapping))
    return "\n".join(text for text in texts if isinstance(text, str))


def _check_same(wanted: _Parts, assembled: _Parts, memory: str) -> None:
    """Raise UnreadableFile unless the assembled messages are the wanted ones.

    The ledger's memory may have fewer of the entries, for the budget, and notes of hooks may precede the current message.
    """
    if wanted.system != assembled.system:
        raise _refused(
            "its system message cannot be assembled (the engine adds a system prompt of its own, or cleans it)"
        )
    names, own_names = ([name for name, _ in parts.blocks] for parts in (wanted, assembled))
    if names != own_names:
        raise _refused(f"its blocks are {', '.join(names) or 'none'} instead of {', '.join(own_names)}")
    for (name, text), (_, own_text) in zip(wanted.blocks, assembled.blocks, strict=True):
        is_shorter = memory == "ledger" and name == "shared_memory" and _is_newest_of(own_text, text)
        if text != own_text and not is_shorter:
            tag = _TAGS[name][0].strip()
            raise _refused(f"its block {tag} has another form than nexus.services.tagged gives it: {text[:60]!r}")
    if not wanted.conversation:
        raise _refused("it has no block [THIS_MOMENT]")
    for text, own_text in zip(wanted.conversation, assembled.conversation, strict=False):
        if not own_text.endswith(text):
            time, current = parse_moment(text)
            raise _refused(f"its current message is another than the run's: {current[:60]!r} at {time}")
    if len(wanted.conversation) > len(assembled.conversation):
        raise _refused("it has messages after the current one")


def _is_newest_of(text: str, other: str) -> bool:
    """Return whether a memory has the newest entries of another one."""
    entries = parse_memory(text)
    others = parse_memory(other)
    return others[len(others) - len(entries) :] == entries


def _refused(why: str) -> UnreadableFile:
    return UnreadableFile(
        f"answer of the context builder not used: {why} (docs/services.md says what is used)", code="bad_context"
    )
