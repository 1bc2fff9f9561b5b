"""What holds for every text that is put into a frame, and random texts that are held against it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from laws.frame_forms import MOMENT_MARKS, memory, memory_marks, moment, read_memory, read_moment, read_runtime, runtime
from laws.frame_texts import BREAKS, ENTRIES, TEXTS
from nexus.text.frames import Scope, escape, escape_line_breaks, scan, unescape, unescape_line_breaks
from nexus.text.message_text import visible_parts
from nexus.types.message import Image, Message, Note, Text
from nexus.types.sanitize import sanitize_text
from nexus.workspace.sources.memory import HEADING as MEMORY

BLOCK = 1_000
"""Examples that are drawn together; each block has a seed of its own, made of the run's seed and the block's number."""

LAWS = ("text in a block", "text in the memory", "value on a line", "moment", "runtime context", "memory", "message")


class Case(NamedTuple):
    """A law and what it is tried with."""

    law: str
    given: tuple[Any, ...]


CASES = st.one_of(
    st.builds(lambda text: Case("text in a block", (text,)), TEXTS),
    st.builds(lambda text: Case("text in the memory", (text,)), TEXTS),
    st.builds(lambda text: Case("value on a line", (text,)), TEXTS),
    st.builds(lambda text: Case("moment", (text,)), TEXTS),
    st.builds(lambda *texts: Case("runtime context", texts), TEXTS, TEXTS, TEXTS),
    st.builds(lambda entries: Case("memory", (entries,)), ENTRIES),
    st.builds(lambda *texts: Case("message", texts), TEXTS, TEXTS, TEXTS),
)


def hold(case: Case) -> int:
    """Holds the case against its law: how many marks it held that were not ours. Raises AssertionError, with the case."""
    match case.law:
        case "text in a block":
            return _text(case.given[0], "block")
        case "text in the memory":
            return _text(case.given[0], "memory")
        case "value on a line":
            return _value(case.given[0])
        case "moment":
            return _framed(moment(*case.given), "block", read_moment, case.given[0], MOMENT_MARKS, case.given)
        case "runtime context":
            return _framed(runtime(*case.given), "block", read_runtime, case.given, 1, case.given)
        case "message":
            return _message(*case.given)
        case _:
            (entries,) = case.given
            texts = [entry.text for entry in entries]
            return _framed(memory(entries), "memory", read_memory, entries, memory_marks(entries), texts)


def _text(text: str, scope: Scope) -> int:
    escaped = escape(text, scope)
    assert unescape(escaped, scope) == text, f"undone wrongly: {escaped!r}"
    assert unescape(escape(escaped, scope), scope) == escaped, f"undone wrongly when escaped twice: {escaped!r}"
    left = scan(escaped, scope)
    assert not left, f"a mark is left: {left} in {escaped!r}"
    assert escaped.replace("\\", "") == text.replace("\\", ""), f"more than backslashes: {escaped!r}"
    assert escape(sanitize_text(text), scope) == sanitize_text(escaped), f"otherwise once it can be sent: {escaped!r}"
    assert (escaped is text) == (escaped == text), "a copy where nothing was to do"
    return len(scan(text, scope))


def _message(channel: str, memory: str, words: str) -> int:
    moment = f"Current time: 2026-01-13T13:30:00.000Z\nChannel: {escape_line_breaks(channel)}"
    notes = (moment, f"{MEMORY}\n{memory}")
    parts = (*(Note("memory", text) for text in notes), Text(words))
    (shown,) = visible_parts(Message("user", parts))
    assert isinstance(shown, Text)
    at = shown.text.rindex(f"\n{MEMORY}") + 1
    found = scan(shown.text)
    assert [one.at for one in found] == [at], f"a mark is left: {found} in {shown.text!r}"
    raw = (f"{moment}\n", f"{MEMORY}\n{memory}\n\n{words}")
    assert (unescape(shown.text[:at]), unescape(shown.text[at:])) == raw, f"undone wrongly: {shown.text!r}"
    picture = Image("image/png", "aGk=")
    apart = visible_parts(Message("user", (*parts, picture)))
    texts = [part.text for part in apart if isinstance(part, Text)]
    assert (len(scan(texts[0])), scan(texts[1])) == (1, ()), f"a mark is left: {texts!r}"
    assert unescape(texts[1]) == words, f"undone wrongly: {texts[1]!r}"
    return len(scan(channel)) + len(scan(memory)) + len(scan(words))


def _value(value: str) -> int:
    line = escape_line_breaks(value)
    assert unescape_line_breaks(line) == value, f"undone wrongly: {line!r}"
    assert not any(char in line for char in BREAKS), f"a line that ends: {line!r}"
    assert line != value or line is value, "a copy where nothing was to do"
    escaped = escape(line, "memory")
    assert not scan(escaped, "memory"), f"a mark is left: {escaped!r}"
    assert unescape_line_breaks(unescape(escaped, "memory")) == value, f"undone wrongly: {escaped!r}"
    return len(scan(value, "memory"))


def _framed(
    form: str, scope: Scope, read: Callable[[str], Any], wanted: Any, marks: int, texts: tuple[str, ...] | list[str]
) -> int:
    assert read(form) == wanted, f"read otherwise: {form!r}"
    found = scan(form, scope)
    assert len(found) == marks, f"{len(found)} marks, and {marks} are ours: {found} in {form!r}"
    return sum(len(scan(text, scope)) for text in texts)


def searched(
    examples: int,
    first_seed: int,
    figures: Counter[str],
    *,
    shrink: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Holds so many cases against the laws and counts them. Raises AssertionError at the first that breaks one."""
    for number, begun in enumerate(range(0, examples, BLOCK)):
        _block(min(BLOCK, examples - begun), first_seed * 1_000_000 + number, figures, shrink=shrink)
        if progress is not None:
            progress(min(begun + BLOCK, examples), examples)


def _block(examples: int, block_seed: int, figures: Counter[str], *, shrink: bool) -> None:
    @seed(block_seed)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
    )
    @given(CASES)
    def cases(case: Case) -> None:
        forged = hold(case)
        figures["examples"] += 1
        figures[case.law] += 1
        figures["marks in texts"] += forged
        figures["examples with a mark"] += bool(forged)

    cases()
