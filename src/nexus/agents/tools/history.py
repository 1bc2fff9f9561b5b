"""Tools for the history of the agent's own session: `recall` searches and opens it, `compact` asks for a summary.

A context shows part of a session. Cuts, compactions and truncated results leave notes that name `recall` with a
reference; it also takes a command for people, such as `nexus history --call ID`. It reads the ledger, which has
every message in full, and never another session.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from msgspec import Struct

from nexus.agents.tools.context import ToolContext
from nexus.assembly.fit.lookup import RECALL
from nexus.assembly.fit.truncate_results import images_of
from nexus.assembly.fit.view import LARGEST_PART, size_class
from nexus.engine import available_tokens
from nexus.errors import ToolCallFailed
from nexus.ledger.replay import conversation_rows, entries_from_turn
from nexus.ledger.search_text import all_text, excerpt_pieces, matches, parse_query
from nexus.ledger.sessions import SearchHit
from nexus.render.console import result_text
from nexus.text.one_line import collapse_whitespace
from nexus.tokens.message_tokens import text_tokens_json
from nexus.types.compaction_plan import CompactionPlan
from nexus.types.ledger_entries import Entry, MessageRef, StoredMessage
from nexus.types.message import Image, Message, Note, Part, Text, Thinking, ToolCall, ToolResult, Unknown

HITS = 10
FETCHED = 50
"""Messages that a search ranks; fewer are shown."""

PAGE_CHARS = 20_000
LEAST_PAGE_CHARS = 800
PAGE_SHARE = 0.75
"""Tokens of a page over those to which a cut shortens results. The rest is for its head, and for denser parts."""

EXCERPT_CHARS = 240
EXCERPT_BEFORE = 80
OPENING_CHARS = 120
MOST_WORDS = 16
MOST_IMAGES = 4

_COMMAND_CALL = re.compile(r"--call[ =](\S+?)[`'\"\]]*(?:\s|\Z)")
_MESSAGE = re.compile(r"(?:entry )?(\d{1,12})\.(\d{1,9})")
_TURN = re.compile(r"turn (\d{1,9})")


class _Excerpt(Struct, frozen=True):
    """A part of the history: its text, the images in it, and a line about it."""

    head: str
    text: str
    images: tuple[Image, ...] = ()


class HistoryTools:
    """The tools `recall` and `compact` for one turn."""

    def __init__(self, context: ToolContext) -> None:
        self._context = context

    def recall(self, query: str = "", reference: str = "", page: int = 1) -> ToolResult:
        """Search this conversation's whole history, or open a part of it in full.

        Use it for earlier messages that were left out or summarized, and for results that were shortened. Where a note names a reference, open it.

        Args:
            query: Words to search for; words in double quotes are a phrase. With a reference, opens its page with them.
            reference: What to open: `12.0` (a message that a search names), `turn 3`, the id of a tool call, or `turns`
                for a list of all turns.
            page: Page of a long text, from 1.
        """
        phrases = parse_query(query)[:MOST_WORDS]
        if not reference.strip():
            if not phrases:
                raise ToolCallFailed('recall needs words to search for, or a reference to open, such as "turn 1"')
            return ToolResult("", (Text(self._search(query, phrases)),))
        part = self._open(reference.strip().strip("`[]'\" "))
        pages = list(_pages(part.text, self._page_chars(part.text)))
        if phrases:
            page = _page_with(pages, phrases)
        if not 1 <= page <= len(pages):
            raise ToolCallFailed(f"{reference} has {len(pages)} pages (choose one of them)")
        if len(pages) == 1:
            head = part.head
        else:
            head = f"{part.head}, page {page} of {len(pages)}"
        images = part.images[:MOST_IMAGES] if page == 1 else ()
        return ToolResult("", (Text(f"[{head}]\n{pages[page - 1]}"), *images))

    async def compact(self, focus: str = "") -> str:
        """Ask for a summary in place of the older messages of this conversation, to make room for further work.

        It is written before your next call. The newest messages stay as they are, and recall still finds the others.

        Args:
            focus: Topic that the summary should keep above all.
        """
        context = self._context
        plan: CompactionPlan | None = await context.run(context.engine.plan, context.session, settings=context.settings)
        if plan is None or context.request_compaction is None:
            return "There is nothing to compact: the older messages take too little room."
        context.request_compaction(focus)
        tokens = max(plan.tokens_before - plan.kept_tokens - plan.summary_tokens, 0)
        return (
            f"Before your next call a summary replaces {plan.messages:,} messages, up to entry {plan.draft.covers_to}, and frees "
            f"about {tokens:,} tokens. Later messages stay as they are; recall finds the others."
        )

    def _page_chars(self, text: str) -> int:
        """Return the characters of a page, which is small enough to be shown whole after a cut too."""
        context = self._context
        sample = text[:PAGE_CHARS]
        limit = context.engine.settings.max_tool_result_tokens
        if limit is None:
            limit = (
                size_class(available_tokens(context.engine, session=context.session, settings=context.settings))
                // LARGEST_PART
            )
        tokens = text_tokens_json(sample, context.engine.counter)
        share = 1.0
        if limit and tokens:
            share = PAGE_SHARE * limit / tokens
        return max(int(PAGE_CHARS * min(share, 1.0)), LEAST_PAGE_CHARS)

    # search ------------------------------------------------------------------------------------------------------

    def _search(self, query: str, phrases: list[list[str]]) -> str:
        hits = [(hit, phrases) for hit in self._usable(self._hits(query), phrases)]
        note = f"messages with all these words: {len(hits)}"
        if not hits:
            hits = self._best_partial(phrases)
            note = f"no message has all these words; messages with some of them: {len(hits)}"
        if not hits:
            return 'No message of this conversation has any of these words. Try others, or open reference="turns".'
        lines: list[str] = []
        for hit, matched in hits[:HITS]:
            pieces = excerpt_pieces(hit.text, matched, before=EXCERPT_BEFORE, chars=EXCERPT_CHARS)
            text = collapse_whitespace("".join(piece for piece, _ in pieces) or hit.text[:EXCERPT_CHARS])
            lines.append(f"{hit.ref.seq}.{hit.ref.ord} (turn {hit.turn}, {hit.role}{_time(hit.at_ms)}): {text}")
        if len(hits) > HITS:
            note += f", of which these are the best {HITS}; add words to narrow the search"
        return "\n".join([*lines, f"[{note}. Open one in full: its number as reference; its turn: turn N]"])

    def _hits(self, query: str) -> list[SearchHit]:
        context = self._context
        return context.engine.ledger.search(query, session=context.session, limit=FETCHED)

    def _usable(self, hits: Iterable[SearchHit], phrases: list[list[str]]) -> Iterator[SearchHit]:
        """Yield the hits of earlier turns, without calls and results of this tool, which repeat other messages."""
        for hit in hits:
            if hit.turn == self._context.turn:
                continue
            entries = self._context.engine.ledger.iter_entries(self._context.session, hit.ref.seq - 1, hit.ref.seq)
            rows = (row for entry in entries for row in entry.rows if row.ref == hit.ref)
            if not any(_is_echo(row.message, phrases) for row in rows):
                yield hit

    def _best_partial(self, phrases: list[list[str]]) -> list[tuple[SearchHit, list[list[str]]]]:
        """Return the messages with any of the phrases, best first, each with its rarest phrase.

        A message ranks by the sum of its phrases, of which rare ones count more.
        """
        hits: dict[MessageRef, tuple[SearchHit, list[list[str]]]] = {}
        weights: Counter[MessageRef] = Counter()
        rows = [(list(self._usable(self._hits(f'"{" ".join(phrase)}"'), [phrase])), phrase) for phrase in phrases]
        for with_phrase, phrase in sorted(rows, key=lambda row: len(row[0])):
            for hit in with_phrase:
                hits.setdefault(hit.ref, (hit, [phrase]))
                weights[hit.ref] += 1_000_000 // len(with_phrase)
        return [hits[ref] for ref in sorted(hits, key=lambda ref: (-weights[ref], -ref.seq, ref.ord))]

    # opening -----------------------------------------------------------------------------------------------------

    def _open(self, reference: str) -> _Excerpt:
        """Return the part that a reference names. Raises ToolCallFailed."""
        context = self._context
        ledger = self._context.engine.ledger
        call = _COMMAND_CALL.search(reference)
        if call is not None:
            return self._open_call(call[1])
        if reference in ("turns", "history") or reference.startswith("nexus history"):
            return self._outline()
        if place := _MESSAGE.fullmatch(reference):
            seq = int(place[1])
            order = int(place[2])
            if seq:
                entries = ledger.iter_entries(context.session, seq - 1, seq)
            else:
                entries = iter(())
            rows = [(entry, row) for entry in entries for row in entry.rows if row.ref.ord == order]
            if rows:
                entry, row = rows[0]
                return _Excerpt(_head(entry, row), message_body(row.message), tuple(images_of(row.message)))
        elif turn := _TURN.fullmatch(reference.lower()):
            number = int(turn[1])
            entries = entries_from_turn(ledger.store, ledger.thread(context.session), number)
            rows = [(entry, row) for entry in entries if entry.turn == number for row in conversation_rows(entry)]
            if rows:
                text = "\n\n".join(
                    f"[{_head(entry, row)}]\n{_indented(message_body(row.message))}" for entry, row in rows
                )
                return _Excerpt(f"turn {number}, {len(rows)} messages", text)
        else:
            return self._open_call(reference)
        raise ToolCallFailed(f'{reference!r} is not in this conversation (reference="turns" lists its turns)')

    def _open_call(self, call_id: str) -> _Excerpt:
        """Return a tool call with its result, the newest one if several have the id."""
        calls: list[tuple[Entry, StoredMessage]] = []
        results: list[tuple[Entry, StoredMessage, ToolResult]] = []
        for entry in self._context.engine.ledger.iter_entries(self._context.session):
            for row in entry.rows:
                calls += [(entry, row) for call in row.message.calls() if call.id == call_id]
                results += [(entry, row, result) for result in row.message.results() if result.call_id == call_id]
        if not calls and not results:
            raise ToolCallFailed(
                f"there is no tool call {call_id!r} in this conversation (search for words of it, or open "
                'reference="turns")'
            )
        others = [f"{row.ref.seq}.{row.ref.ord}" for _, row, _ in results[:-1]]
        also = ""
        if others:
            also = f"; earlier results of this id: {', '.join(others[-5:])}"
        if not results:
            entry, row = calls[-1]
            return _Excerpt(f"{_head(entry, row)}, without a result", message_body(row.message))
        entry, row, result = results[-1]
        images = tuple(item for item in result.content if isinstance(item, Image))
        name = result.name or next(
            (call.name for _, row in calls for call in row.message.calls() if call.id == call_id), ""
        )
        return _Excerpt(f"{_head(entry, row)}, result of {name or call_id}{also}", result_text(result), images)

    def _outline(self) -> _Excerpt:
        """Return one line for each turn: its time, size and opening words."""
        openings: dict[int, str] = {}
        sizes: Counter[int] = Counter()
        for entry in self._context.engine.ledger.iter_entries(self._context.session):
            for row in conversation_rows(entry):
                sizes[entry.turn] += 1
                if row.message.role == "user" and entry.turn not in openings:
                    text = collapse_whitespace(row.message.text()[: OPENING_CHARS * 4])
                    if len(text) <= OPENING_CHARS:
                        short = text
                    else:
                        short = f"{text[:OPENING_CHARS]}…"
                    openings[entry.turn] = f"{_time(row.message.at_ms).removeprefix(', ')} {short}".strip()
        lines = (f"turn {turn} ({sizes[turn]} messages): {openings.get(turn, '')}".rstrip() for turn in sorted(sizes))
        return _Excerpt(f'{len(sizes)} turns; open one with reference="turn N"', "\n".join(lines))


def _is_echo(message: Message, phrases: list[list[str]]) -> bool:
    """Return whether only calls or results of this tool in a message have the phrases."""
    others = [part for part in message.parts if not (isinstance(part, (ToolCall, ToolResult)) and part.name == RECALL)]
    return len(others) < len(message.parts) and not matches(all_text(others), phrases)


def _head(entry: Entry, row: StoredMessage) -> str:
    message = row.message
    return f"{row.ref.seq}.{row.ref.ord}, turn {entry.turn}, {message.role}{_time(message.at_ms or entry.at_ms)}"


def _time(at_ms: int) -> str:
    if not at_ms:
        return ""
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime(", %Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):  # imported files may contain any number
        return ""


def message_body(message: Message) -> str:
    """Return everything that a message contains as text."""
    return "\n".join(text for text in map(_part_text, message.parts) if text)


def _part_text(part: Part) -> str:
    match part:
        case Text(text):
            return text
        case Thinking(text):
            if text:
                return f"(thinking) {text}"
            return ""
        case ToolCall(id=call_id, name=name, arguments=arguments):
            return f"called {name} (id {call_id}) with {arguments}"
        case ToolResult():
            return f"result of {part.name or part.call_id}:\n{result_text(part)}"
        case Image():
            return f"[{part.media_type}]"
        case Note():
            return ""
        case Unknown(raw=raw):
            return raw


def _indented(text: str) -> str:
    """Return the text with every line indented, so that none can imitate the head of another message."""
    return "\n".join(f"  {line}" for line in text.splitlines())


def _pages(text: str, chars: int) -> Iterator[str]:
    """Yield the text in pages of at most so many characters, each up to a line end if one is in its last fifth."""
    start = 0
    while len(text) - start > chars:
        end = start + chars
        line = text.rfind("\n", end - chars // 5, end)
        end = line + 1 if line > 0 else end
        yield text[start:end]
        start = end
    yield text[start:]


def _page_with(pages: list[str], phrases: list[list[str]]) -> int:
    """Return the number of the first page with all phrases, else with any. Raises ToolCallFailed."""
    for number, page in enumerate(pages, 1):
        if matches(page, phrases):
            return number
    for number, page in enumerate(pages, 1):
        if any(matches(page, [phrase]) for phrase in phrases):
            return number
    raise ToolCallFailed(f"none of its {len(pages)} pages has these words (leave out the query to read it)")
