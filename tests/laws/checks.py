"""The laws of fitting, one function each: what every context has to be, whatever happened to its session before.

Each raises `Broken` with the law's name. They read the context, the ledger's entries and the oracle, nothing else.
"""

from __future__ import annotations

import re
from typing import Any

import nexus
from laws.call import Call, broken, encode, texts_of, tokens
from laws.oracle import (
    LOST,
    SUMMARY,
    Atom,
    Path,
    atoms_shown,
    begins,
    is_short_for,
    live,
    seen,
    summary_task,
    without_pictures,
    without_task,
)
from nexus.assembly.fit.excerpts import is_user_turn
from nexus.assembly.fit.truncate_results import LEAST_TOKENS
from nexus.errors import BudgetTooSmall
from nexus.text.frames import unescape
from nexus.types.ledger_entries import MessageRef, StoredMessage
from nexus.types.message import Image, Note, Text, ToolCall
from support.validity import CHECKS, Recounter

OWN = {"openai": ("openai", "responses"), "anthropic": ("anthropic",), "gemini": ("gemini",)}
"""The forms that a model of each family is called in."""

CLOSERS = {"openai": "]}", "responses": "]}", "anthropic": "]}]}", "gemini": "]}]}"}
"""What closes the messages and the body."""

_RECOUNT = Recounter()
_EXTRAS = re.compile(r" ?\[with [^\]]*\]\Z")
_UNSHOWN = re.compile(r"([\d,]+) (?:of the user's turns (?:is|are)|(?:more|earlier) user turns are) not shown")
_PICTURE = re.compile(r"^\[image\S* .*was shown here before.*\]$", re.MULTILINE)
_PICTURES = re.compile(r"\n\[\d+ images were shown here; they are in the ledger\]\Z")


def valid(call: Call) -> int:
    """Every provider would take the body. Returns how many bodies were judged."""
    for wire, body in call.bodies.items():
        if problems := CHECKS[wire](body):
            broken("valid", f"{wire}: {problems}")
    return len(call.bodies)


def within_budget(call: Call) -> None:
    """What another tokenizer counts in the body is within the account, and the account within the budget."""
    ctx = call.ctx
    used = ctx.token_budget.used.total
    if used > call.budget or ctx.token_budget.remaining < 0:
        broken("within budget", f"{used} of {call.budget}")
    factor = ctx.provenance.manifest.factor
    for wire in OWN[ctx.accounting.model_info.provider_format]:
        counted = _RECOUNT.count(call.bodies[wire]) * factor
        if counted > used:
            broken("within budget", f"{wire} has {counted} tokens, the account says {used}")
    if sum(item.tokens for item in ctx.accounting.token_breakdown) != used:
        broken("within budget", "the account's lines do not add up")


def refused(error: BudgetTooSmall, budget: int) -> None:
    """A refusal names its parts, which add up to more than there is."""
    if sum(error.parts.values()) != error.needed_tokens or error.available_tokens != budget:
        broken("refusal", f"{error.parts} {error.needed_tokens} {error.available_tokens}")
    if error.needed_tokens <= error.available_tokens:
        broken("refusal", f"{error.needed_tokens} fit into {error.available_tokens}")


def nothing_vanishes(call: Call) -> None:
    """From the first message shown on, everything that is stored is shown, in order, once, and each call with its result."""
    shown, expected = atoms_shown(call.tail), call.expected.atoms
    if len(shown) != len(expected):
        at = next((i for i, (s, e) in enumerate(zip(shown, expected, strict=False)) if s[:2] != e[:2]), -1)
        broken(
            "nothing vanishes",
            f"{len(shown)} atoms, not {len(expected)}; {at}: {shown[at : at + 2]} {expected[at : at + 2]}",
        )
    for mine, wanted, place in zip(shown, expected, call.expected.of, strict=True):
        if wanted[0] == "late":
            _late(call, mine, wanted, place)
        elif mine[0] != "result":
            if mine != wanted:
                broken("nothing vanishes", f"{mine} in place of {wanted}")
        elif mine[:2] != wanted[:2] or (wanted[2] == LOST) != (mine[2] == LOST):
            broken("pairs whole", f"{mine} in place of {wanted}")
        else:
            _result(call, mine, wanted, place)


def _late(call: Call, mine: Atom, wanted: Atom, place: MessageRef | None) -> None:
    """A late result is text of a user's message, with its heading: whole, or shortened as any other."""
    _, heading, text, pictures = wanted
    shown = str(mine[1]).removeprefix(heading)
    if mine[0] != "late" or shown == mine[1]:
        broken("nothing vanishes", f"{mine} in place of {wanted}")
    if unescape(shown) == text and mine[2] == pictures:
        return
    lines = without_pictures(unescape(shown))
    if lines[1] + mine[2] != pictures:
        broken("results", f"{mine[2]} pictures and {lines[1]} lines for {pictures} pictures")
    if lines[0] == text:
        return
    seq = place.seq if place is not None else call.ctx.provenance.manifest.head + 1
    limit = call.limit_at(seq)
    if not limit or not is_short_for(lines[0], text):
        broken("results", f"not a head and tail of what is stored: {shown!r}")


def _result(call: Call, mine: Atom, wanted: Atom, place: MessageRef | None) -> None:
    """A result is whole, or shortened from what is stored: within its limit, and only where it is over it."""
    seq = place.seq if place is not None else call.ctx.provenance.manifest.head + 1
    limit = call.limit_at(seq)
    waits = call.path.pairing.group
    if place is None and waits is not None and call.verbatim & set(call.path.pairing.groups.get(waits, ())):
        limit = 0
    if wanted[4:]:
        shown, notes = _without_notes(mine[2], wanted)
    else:
        shown, notes = without_pictures(mine[2]) if mine[2] != wanted[2] else (mine[2], 0)
    if notes + mine[3] != wanted[3]:
        broken("results", f"{mine[3]} pictures and {notes} lines for {wanted[3]} pictures")
    if notes and (call.cut is None or seq > max(call.cut.truncate_until_seq, call.cut.images_until_seq)):
        broken("results", "a picture of a newer result became a line")
    if shown == wanted[2]:
        pinned = place is not None and place in call.verbatim
        if limit and wanted[2] != LOST and not pinned and tokens(shown) > limit:
            broken("results", f"{tokens(shown)} tokens are whole, the limit is {limit}")
        return
    call.shortened += 1
    if not limit or not is_short_for(shown, wanted[2]):
        broken("results", f"not a head and tail of what is stored: {shown!r}")
    if tokens(shown) > max(limit, LEAST_TOKENS):
        broken("results", f"{tokens(shown)} tokens, the limit is {limit}")
    if place is not None and place in call.verbatim:
        broken("pins word for word", f"the pinned result at {place} is shortened")
    if call.ctx.tools and "nexus history" in shown:
        broken("results", f"a command is named to a model with other tools: {shown!r}")
    if not call.ctx.tools and "`nexus history" not in shown and tokens(shown) + 30 < limit:
        broken("results", f"the way to the whole is not named: {shown!r}")


def _without_notes(shown: str, wanted: Atom) -> tuple[str, int]:
    """A result's text without the notes for its pictures: they stand in their places, or after a text that is shortened."""
    whole, in_place, notes = wanted[2], wanted[4], wanted[5]
    if shown == in_place:
        return whole, len(notes)
    end = "".join(f"\n{note}" for note in notes)
    return (shown.removesuffix(end), len(notes)) if shown.endswith(end) else (shown, 0)


def images_of_newest_turns(call: Call) -> None:
    """Images become notes up to before the newest turns that keep theirs, and nowhere where all are to stay."""
    until = call.cut.images_until_seq if call.cut is not None else 0
    if not until:
        return
    rows = call.path.talk(call.path.begin)
    newer = [row for row in rows if row.ref in call.path.pairing.starts and row.ref.seq > until]
    turns = sum(row.message.role != "assistant" for row in newer)
    if not call.image_turns or turns < call.image_turns:
        broken("old images", f"notes up to {until}, with {turns} turns after it; {call.image_turns} keep theirs")


def event_whole(call: Call) -> None:
    """What is asked now is in the body that is sent, whole; results may be shortened."""
    if not call.event:
        return
    texts = [seen(said) for said in texts_of(call.event[-1])]
    for wire in OWN[call.ctx.accounting.model_info.provider_format]:
        for said in texts:
            if encode(said)[1:-1] not in call.sent[wire]:
                broken("event whole", f"{said!r} is not in the {wire} body")


def summary_and_marker(call: Call) -> None:
    """The live summary stands first unless the cut says that it had no room; the marker is the cut's, byte for byte."""
    mark, cut = call.path.live, call.cut
    said = [message.text() for message in call.opening]
    if mark is not None and mark.kind == "compaction" and (cut is None or cut.keeps_summary):
        summary, task = str(mark.body["summary"]), summary_task(str(mark.body["summary"]))
        allowed = [seen(f"{SUMMARY}{summary}")]
        row = call.path.task()
        whole = seen(row.message.text()) if row is not None else ""
        # The first message may be shown shortened, with less of it than the summary's quote.
        if task and any(" ".join(one.split()).startswith(task) or is_short_for(one, whole) for one in said[1:]):
            allowed.append(seen(f"{SUMMARY}{without_task(summary)}"))
        if not said or said[0] not in allowed:
            broken("summary", f"{said[:1]} in place of the live summary")
    elif any(one.startswith(SUMMARY.strip()) for one in said):
        broken("summary", "a summary that does not hold is shown")
    lost = mark is not None and mark.kind == "compaction" and cut is not None and not cut.keeps_summary
    if cut is not None and lost != (", and the summary of what came before them" in cut.omission_notice):
        broken("marker", f"{cut.omission_notice!r}, and the summary is {'left out' if lost else 'shown'}")
    if cut is not None and cut.omission_notice and said.count(cut.omission_notice) != 1:
        broken("marker", f"{cut.omission_notice!r} stands {said.count(cut.omission_notice)} times in the opening")


def counted(call: Call) -> None:
    """A cut counts exactly the messages that it leaves out: those stored before the first shown, less those that stay."""
    cut = call.cut
    if cut is None:
        return
    begin, first = call.path.begin, cut.first
    stay = {row.ref for row in call.lead} | set(cut.excerpts)
    for place in call.path.pins():
        if place < first:
            stay.update(call.path.group_of.get(place, []))
    task = call.path.task()
    if task is not None and cut.shows_first_message and True:
        stay.add(task.ref)
    if (
        cut.pending_request_ref is not None
        and cut.shows_pending_request
        and (cut.shows_first_message or task is None or cut.pending_request_ref != task.ref)
    ):
        stay.add(cut.pending_request_ref)
    out = [row for row in call.path.talk(begin, first) if row.ref not in stay]
    speaking = [row for row in out if call.path.said(row.ref)]
    if call.cuts:
        late = [p for p in call.early if p not in stay]
        if not len(speaking) <= cut.omitted_messages <= len(out) + len(late):
            broken("marker counts", f"{cut.omitted_messages}, but {len(speaking)} to {len(out)} are left out: {cut}")
        if not cut.omission_notice and speaking:
            broken("marker counts", f"{len(speaking)} messages are left out without a word: {cut}")
        if cut.omission_notice and f": {cut.omitted_messages:,} messages," not in cut.omission_notice:
            broken("marker counts", f"{cut.omission_notice!r} for {cut.omitted_messages}")


def pins_whole(call: Call) -> None:
    """Every pinned message is shown word for word, with its group."""
    said = [atom[:1] + atom[2:] if atom[0] == "result" else atom for atom in atoms_shown(call.ctx.messages)]
    for place in call.path.pins():
        notes = call.path.notes(place)
        for atom in call.path.said(place):
            if atom[0] == "user" and atom[1] in notes:
                continue
            if atom[0] == "call" or (atom[0] == "result" and atom[2:] == (LOST, 0)):
                continue
            if atom[0] == "result" and (call.path.place_of_call(atom[1]) or place) > place:
                continue  # the pin alone, without its later call, is a result without a call
            wanted = atom[:1] + atom[2:] if atom[0] == "result" else atom
            if wanted not in said:
                broken("pins word for word", f"{wanted} at {place} is not shown")


def task_present(call: Call) -> None:
    """What the session was begun for is shown, whole or shortened, unless the cut says that it had no room."""
    row = call.path.task()
    if row is None or not True:
        return
    if call.cut is not None and not call.cut.shows_first_message:
        if call.cuts and call.ctx.token_budget.remaining > _at_most(call, row, 2 * call.largest):
            broken("first task", f"left out, with {call.ctx.token_budget.remaining} tokens to spare")
        return
    if not _is_told(call, row):
        broken("first task", f"{row.message.text()!r} is not shown")


def request_present(call: Call) -> None:
    """What the kept messages answer is shown, whole or shortened, unless there was no room."""
    kept = [row for row in call.path.talk(call.first) if row.ref in call.expected.starts]
    if not kept or kept[0].message.role != "assistant":
        return
    row = call.path.request_before(kept[0].ref)
    if row is None or row.message.role != "user":
        return
    if _is_told(call, row):
        return
    asked = call.cut.pending_request_ref if call.cut is not None else _asked(call)
    task = call.path.task()
    if call.cut is not None and not call.cut.shows_first_message and task is not None and task.ref == asked:
        return
    if call.cut is not None and not call.cut.shows_pending_request:
        if call.cuts and call.ctx.token_budget.remaining > _at_most(call, row, call.largest):
            broken("request", f"left out, with {call.ctx.token_budget.remaining} tokens to spare: {row}")
        return
    if asked is None and call.foreign:
        return
    broken("request", f"{row.message.text()!r} at {row.ref} is not shown; {asked=}")


def _asked(call: Call) -> Any:
    mark = call.path.live
    return mark.body.get("asked") if mark is not None else None


def _at_most(call: Call, row: StoredMessage, largest: int) -> float:
    """Tokens that a message can take at most when it is shown among what is left out, with the longest marker.

    `largest` is where it is shortened: the first task at twice what a result may take.
    """
    whole = sum(map(tokens, texts_of(row.message)))
    # A picture of unknown size counts as the largest that Gemini cuts into tiles.
    images = sum(1_700 if part.width else 6_400 for part in row.message.parts if isinstance(part, Image))
    least = min(whole + images, largest) if largest else whole + images
    return (least + 200) * call.ctx.accounting.model_info.token_factor


def _is_told(call: Call, row: StoredMessage) -> bool:
    """Whether a message is shown: all of its texts but memory notes, or its text shortened; one of images, as these."""
    shown = atoms_shown(call.ctx.messages)
    said = {atom[1] for atom in shown if atom[0] == "user"}
    own = [part.text for part in row.message.parts if isinstance(part, Text)]
    moments = [part.text for part in row.message.parts if isinstance(part, Note) and part.kind == "moment"]
    texts = [seen(text) for text in (*own, *moments) if text.strip()]
    if texts and all(one in said for one in texts):
        return True
    if not texts:
        images = any(isinstance(part, Image) and (part.data or part.url) for part in row.message.parts)
        return not images or ("image",) in shown or any(_PICTURES.search(one) or _PICTURE.search(one) for one in said)
    words = [text for text in own if text.strip()]
    wholes = [seen("\n".join(own)), seen("\n".join(words)), *([] if words else [seen("\n".join(moments))])]
    told = [_PICTURES.sub("", one) for one in said]
    return any(one == whole or is_short_for(one, whole) for one in told for whole in wholes)


def excerpts_shown(call: Call) -> None:
    """Every excerpt is of a user or an assistant's text, stands before what is shown in its place, and is shown once."""
    said = [_PICTURES.sub("", message.text()) for message in call.opening]
    for place in call.excerpts:
        row = next((row for row in call.path.rows if row.ref == place), None)
        if row is None or place >= call.first:
            broken("excerpts", f"{place} is not a message before {call.first}")
        texts = [part.text for part in row.message.parts if isinstance(part, Text)]
        wholes = [seen("\n".join(texts)), seen("\n".join(text for text in texts if text.strip()))]
        lines = [line for one in said for line in re.split(r"\n(?:user|assistant): ", one)]
        if not any(whole.strip() in one or _is_line_of(one, whole.strip()) for one in lines for whole in wholes):
            broken("excerpts", f"{wholes[0]!r} at {place} is not shown: {said}")
    if len(set(call.excerpts)) != len(call.excerpts):
        broken("excerpts", f"one stands twice: {call.excerpts}")


def _is_line_of(line: str, whole: str) -> bool:
    """Whether a line of the note has the beginning or end of a text, which may have several lines itself."""
    head, dots, tail = line.partition(" …")
    if not dots:
        return False
    first_of_tail = _EXTRAS.sub("", tail.strip().split("\n", 1)[0])
    return bool(head or first_of_tail) and whole.startswith(head.rstrip()) and first_of_tail in whole


def user_turns_accounted(call: Call) -> None:
    """Every user turn is shown whole or as an excerpt, or it is counted where the others are left out."""
    mark, cut = call.path.live, call.cut
    if call.foreign or not call.keeps_user_turns or (cut is None and (mark is None or mark.kind != "compaction")):
        return
    shown = {*call.excerpts, *(row.ref for row in (*call.lead, *call.hidden_pins))}
    task = call.path.task()
    if task is not None and (cut is None or cut.shows_first_message):
        shown.add(task.ref)
    asked = cut.pending_request_ref if cut is not None else None
    is_task = task is not None and asked == task.ref
    if asked is not None and cut is not None and cut.shows_pending_request and (cut.shows_first_message or not is_task):
        shown.add(asked)
    if cut is None and (stored := _asked(call)):
        shown.add(MessageRef(stored["seq"], stored["ord"]))
    rows = call.path.talk(MessageRef(call.path.clear + 1, 0), call.first)
    turns = [row for row in rows if row.message.role == "user" and is_user_turn(row.message)]
    missing = [row for row in turns if row.ref not in shown]
    counts = [int(count.replace(",", "")) for one in call.opening for count in _UNSHOWN.findall(one.text())]
    if (counts or [0]) != [len(missing)] * max(len(counts), 1):
        places = [row.ref for row in missing]
        broken("user turns", f"{len(missing)} are not shown, {places}, and the notices say {counts}")


def covered_without_gap(path: Path) -> None:
    """Summaries follow each other without a gap, back to the beginning or to a clear."""
    mark = path.live
    while mark is not None and mark.kind == "compaction":
        earlier = live(path.entries[: mark.seq - 1])
        start, covers_from = begins(earlier), mark.body["covers_from"]
        gap = path.talk(start, MessageRef(covers_from, 0))
        if covers_from > start.seq and gap:
            broken("covers", f"{covers_from} does not follow {start}: {len(gap)} messages in between")
        mark = earlier


def extends(call: Call, before: dict[str, str] | None, causes_possible: set[str]) -> None:
    """The last body, less its brackets, begins this one, byte for byte, unless a cause is told; and only true causes are."""
    prefix = call.ctx.accounting.prefix
    if prefix.state == "broken" and not prefix.causes:
        broken("prefix", "broken without a cause")
    if prefix.state == "extends" and before is not None:
        for wire, closer in CLOSERS.items():
            if not call.sent[wire].startswith(before[wire].removesuffix(closer)):
                broken("prefix", f"{wire} moved without a cause")
    for cause in prefix.causes:
        if not any(word in cause for word in causes_possible):
            broken("prefix", f"{cause!r}, but only {sorted(causes_possible)} happened")


def full_pass(call: Call) -> None:
    """Where nothing is left out or shortened, the kept window shows what one pass over the whole history shows."""
    if call.opening or call.shortened or call.cut is not None or call.mark_plain:
        return
    if call.first > MessageRef(1, 0):  # a window that hides its start knows calls that `repaired` never sees
        return
    history = [row.message for row in call.path.talk(call.first)]
    whole, _ = nexus.repaired([*history, *call.event])
    shown = call.ctx.messages
    if call.ctx.provider == "anthropic":  # it keeps long ids of calls, which `repaired` shortens for all providers
        shown, _ = nexus.repaired(shown)
    if whole != shown:
        at = next((i for i, (w, m) in enumerate(zip(whole, shown, strict=False)) if w != m), -1)
        broken("full pass", f"message {at}: {shown[at]} in place of {whole[at]}")


def sent_messages_are_named(call: Call) -> None:
    """Each sent message names its place and what became of it: the same as stored, less, or written by Nexus."""
    ctx, rows = call.ctx, {row.ref: row.message for row in call.path.rows}
    sent = ctx.sent_messages
    if [item.message for item in sent] != ctx.messages:
        broken("sent messages", f"{len(sent)} are named of {len(ctx.messages)}")
    for index, item in enumerate(sent):
        stored = rows.get(item.ref) if item.ref is not None else None
        if item.state == "unchanged" and index < len(ctx.history) and item.message != stored:
            broken("sent messages", f"message {index} is not the one at {item.ref}: {item.message}")
        if item.state in ("truncated", "repaired") and index < len(ctx.history) and stored in (None, item.message):
            broken("sent messages", f"message {index}, {item.state}, is the one at {item.ref}: {item.message}")
        if item.state == "synthetic" and item.message in rows.values() and item.message.role != "tool":
            broken("sent messages", f"message {index} is stored: {item.message}")


def waiting_kept(path: Path, calls: list[ToolCall]) -> None:
    """No summary covers a call that still waits for its result.

    After a cut the engine pairs calls and results from a later message on, which may end a group of unusual order sooner.
    """
    if path.live is None or path.live.kind != "compaction" or not calls:
        return
    last = path.pairing.group
    if last is not None and last < path.begin and not any(map(path.begin.__le__, path.last_groups(last))):
        broken("waiting calls", f"the group at {last} waits and is covered up to {path.begin}")
