"""The window's arrays: each message counts as its parts say, however it came to be shown."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nexus.assembly.fit import repair
from nexus.assembly.fit.display_rules import DisplayRules
from nexus.assembly.fit.truncate_results import TruncationLimits, freed_tokens
from nexus.assembly.fit.window import Window
from nexus.assembly.record import with_sizes
from nexus.tokens.counter import get_counter
from nexus.types.ledger_entries import MessageRef, StoredMessage
from nexus.types.message import Message, Note, ProviderFormat, Text, ToolCall, ToolResult
from support.hostile import HISTORIES, SPOKEN

COUNTER = get_counter("estimate")


@settings(max_examples=300, deadline=None)
@given(
    st.lists(SPOKEN, max_size=8) | HISTORIES,
    st.sampled_from(["openai", "anthropic", "gemini"]),
    st.integers(0, 14),
    st.sampled_from([0, 7]),
)
def test_window_counts_each_message_by_its_parts(
    history: list[Message], wire: ProviderFormat, plain: int, more: int
) -> None:
    """`more` are optional tokens that a program stored with a message, beyond its parts."""
    window = Window(DisplayRules(wire, plain_until=plain))
    sizes = [replace(sized.size, optional=sized.size.optional + more) for sized in with_sizes(history, COUNTER)]
    rows = [
        StoredMessage(MessageRef(seq, 0), message, size)
        for seq, (message, size) in enumerate(zip(history, sizes, strict=True), 1)
    ]
    window.show(rows, COUNTER)
    assert window.rows == rows
    shown = list(enumerate(window.messages))
    starts = [(index, message) for index, message in shown if index in window.indexes.groups]
    assert window.indexes.turns == [
        index
        for index, message in starts
        if message.role == "user" and message.source != repair.LATE_SOURCE and message.has_content()
    ]
    notes = (part for message in window.messages for part in message.parts if isinstance(part, Note))
    assert window.memory == {note.origin: note.text for note in notes if note.kind == "memory"}
    freed = ((index, freed_tokens(message)) for index, message in shown)
    assert window.reductions.image_savings == [(index, tokens) for index, tokens in freed if tokens]
    for index, message in shown:
        row = window.rows[window.indexes.row_of[index]]
        if window.indexes.row_of[index] < 0 or message != row.message or message.id or any(message.calls()):
            continue  # changed, or possibly one of several pieces
        optional = window.rules.optional_tokens_of(message, row.size) if row.ref.seq > plain else 0
        assert window.optional_tokens[index] == optional
        assert window.sums[index + 1] - window.sums[index] == row.size.on(wire) + optional


@pytest.mark.parametrize(
    ("wire", "render", "is_kept"), [("anthropic", 7, True), ("anthropic", 6, False), ("openai", 7, False)]
)
def test_long_call_id_is_kept_for_anthropic_since_render_version_7(
    wire: ProviderFormat, render: int, is_kept: bool
) -> None:
    call_id = "x" * 41
    history = [
        Message("user", (Text("Go"),)),
        Message("assistant", (ToolCall(call_id, "run", "{}"),)),
        Message("tool", (ToolResult(call_id, (Text("done"),)),)),
    ]
    window = Window.open(DisplayRules(wire, render=render), COUNTER, TruncationLimits())
    window.show(
        [
            StoredMessage(MessageRef(seq, 0), sized.message, sized.size)
            for seq, sized in enumerate(with_sizes(history, COUNTER), 1)
        ],
        COUNTER,
    )
    _, calling, answer = window.messages
    shown = {*(call.id for call in calling.calls()), *(result.call_id for result in answer.results())}
    assert shown == {call_id if is_kept else "x" * 32}
