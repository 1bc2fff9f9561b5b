"""A history's facts that are kept with its window."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

import nexus
from nexus.types.history import History
from nexus.types.message import Message


def has_mark(message: Message) -> bool:
    return message.text() == "mark"


@given(
    st.lists(st.booleans(), max_size=12),
    st.lists(st.integers(0, 12), max_size=6),
    st.booleans(),
)
def test_law_a_fact_is_found_in_the_messages_of_each_history_of_a_window(
    marks: list[bool], ends: list[int], is_opening_marked: bool
) -> None:
    """The window grows, and a call that began before has fewer of its messages."""
    shared = [nexus.user("mark" if is_marked else "none") for is_marked in marks]
    opening = (nexus.user("mark"),) if is_opening_marked else ()
    fragments: dict[str, list[object]] = {}
    for end in ends:
        history = History(shared=shared, end=min(end, len(shared)), fragments=fragments)
        assert history.has_any("mark", has_mark) == any(map(has_mark, history))
        with_opening = History(opening, shared, history.end, fragments=fragments)
        assert with_opening.has_any("mark", has_mark) == any(map(has_mark, with_opening))
