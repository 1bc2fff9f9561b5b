"""Values that are not what their types say: refused whole, or stored so that they come back as they were."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from nexus.errors import BadReference
from nexus.ledger.sqlite import SqliteLedger
from nexus.types.ledger_entries import Commit, NewEntry, SizedMessage
from nexus.types.message import Image, Message, Note, Text, Thinking, TokenSize, ToolCall, ToolResult, Unknown

SIMPLE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.binary(max_size=3),
    st.sampled_from(["", "x", "\ud800", "é"]),
)
ANY = st.one_of(
    st.text(max_size=3),
    SIMPLE,
    st.lists(SIMPLE, max_size=2),
    st.tuples(SIMPLE),
    st.dictionaries(st.text(max_size=1), SIMPLE),
)
INNER = st.one_of(st.builds(Text, ANY), st.builds(Image, ANY, ANY, width=ANY), ANY)  # pyright: ignore[reportArgumentType]
CONTENT: Any = st.one_of(st.lists(INNER, max_size=2).map(tuple), st.lists(INNER, max_size=2), ANY)
PARTS: Any = st.one_of(
    st.builds(Text, ANY),
    st.builds(Thinking, ANY, ANY, ANY),
    st.builds(ToolCall, ANY, ANY, ANY),
    st.builds(ToolResult, ANY, CONTENT, ANY, ANY),
    st.builds(Note, ANY, ANY, ANY),
    st.builds(Unknown, ANY, ANY),
    st.builds(Image, ANY, ANY, ANY, ANY, ANY),
    ANY,
)
MESSAGES: Any = st.builds(
    Message,
    st.one_of(st.sampled_from(["user", "assistant", "tool", "system"]), ANY),
    st.one_of(st.lists(PARTS, max_size=2).map(tuple), ANY),
    *[ANY] * 6,
)


@settings(max_examples=300, deadline=None)
@given(message=MESSAGES)
@example(message=Message("tool", (ToolResult("c", ("x",)),)))  # pyright: ignore[reportArgumentType]
@example(message=Message("tool", (ToolResult("c", (Text("x"),), is_error=1),)))  # pyright: ignore[reportArgumentType]
@example(message=Message("user", (Text("x"),), at_ms=2**70))
@example(message=Message("user", (Text("x"),), at_ms=2**63))
@example(message=Message("user", (Text("x"),), at_ms=-(2**63) + 1))
@example(message=Message("user", (Image("image/png", "aa", width=True),)))
def test_message_with_any_values_is_rejected_or_round_trips(message: Message) -> None:
    store = SqliteLedger()
    store.commit("main", Commit((NewEntry("completed"),)))
    before = list(store.dump())
    entry = NewEntry(messages=(SizedMessage(message, TokenSize(1, 1, 1)),))
    try:
        done = store.commit("main", Commit((entry,)))
    except BadReference:
        assert list(store.dump()) == before
    else:
        (read,) = store.entries(done.thread, 1)
        assert [row.message for row in read.rows] == [message]
    store.close()
