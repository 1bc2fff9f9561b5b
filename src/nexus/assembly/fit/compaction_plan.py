"""Compaction plans: everything up to a group's start is summarized, so that the prompt shrinks to a target.

The newest messages stay, including calls that wait for their result. An existing summary is updated with the messages
that it kept, not summarized again. A plan is a value; `nexus.summarization` carries it out.
"""

from __future__ import annotations

from msgspec import Struct

from nexus.assembly.fit.cut_history import HIGH_MARK, LOW_MARK
from nexus.assembly.fit.cut_pins import opening_pins, pending_request, reserved_places
from nexus.assembly.fit.excerpts import MOST_WITHHELD, Excerpts, choose_user_turns, lost_turns
from nexus.assembly.fit.pins import NOTE_FRAME_TOKENS
from nexus.assembly.fit.token_sums import first_group_within, projected_sums, recent_turns_start
from nexus.assembly.fit.window import Window
from nexus.assembly.inputs import StoredSession
from nexus.ledger.replay import visible_start
from nexus.tokens.counter import TokenCounter
from nexus.tokens.scale import TokenScale
from nexus.types.compaction_plan import RECOVER_TO, CompactionPlan, Trigger
from nexus.types.ledger_entries import Compaction, MessageRef

SUMMARY_PART = 8
"""A summary may take this part (an eighth) of the available tokens, and no more than `MOST_SUMMARY` base tokens."""

LEAST_SUMMARY = 200
MOST_SUMMARY = 4_000

LEAST_TAIL = 0.10
"""Excerpts take no more of the target than leaves this share of the available tokens, or a quarter of the target, to the
newest messages."""

LEAST_GAIN = 0.10
"""An automatic compaction must free this share of the available tokens."""


class Aim(Struct, frozen=True):
    """The target of a compaction."""

    session: str
    view: str

    scale: TokenScale

    share: float
    """Share of the available tokens that the prompt should shrink to."""

    trigger: Trigger

    keeps_user_turns: bool = False
    """True if covered user turns are shown as excerpts."""


def plan_compaction(
    window: Window,
    fixed_tokens: int,
    other_tokens: int,
    aim: Aim,
    session: StoredSession,
) -> CompactionPlan | None:
    """Return the plan of a compaction, None if it is not worth it.

    `fixed_tokens` are the base tokens of system prompt, tools and preamble, `other_tokens` these with the event. A manual compaction keeps the newest quarter of
    the messages, and at most the last three turns. An automatic one keeps as much as the target allows, or the last three
    turns if they take at most half of it, and must free a tenth of the available tokens.
    """
    if not window.indexes.groups:
        return None
    available = aim.scale.available
    counter = aim.scale.counter
    mark = session.mark
    manual, opening = aim.trigger == "manual", window.opening
    sums = projected_sums(window, 0, 0, window.head)
    limit = min(max(available // SUMMARY_PART, LEAST_SUMMARY), MOST_SUMMARY)
    last, recent = window.indexes.groups[-1], recent_turns_start(window)
    spent = other_tokens + limit + _pinned_tokens(window, last)
    free = int(aim.share * available) - spent
    room = most = 0
    if aim.keeps_user_turns:
        # Excerpts may lift the prompt above the target, as after a cut, but not up to where it was.
        highest = int(aim.share * HIGH_MARK / LOW_MARK * available) - spent
        least_tail = int(min(LEAST_TAIL, aim.share / 4) * available)
        room = max(min((available - other_tokens) // 2, highest - least_tail), 0)
        excerpt_limit = max(available - fixed_tokens, 0) // 2
        tokens = _excerpts(window, last, room, excerpt_limit, counter).tokens
        if not manual:
            free = max(min(free, highest - tokens), least_tail)
    index = min(first_group_within(window, sums, free), last)
    if manual:
        quarter = first_group_within(window, sums, min(free, (sums[-1] - sums[0]) // 4))
        index = min(max(quarter, recent), last)
    elif sums[-1] - sums[recent] <= (_real_available(aim) - other_tokens - limit - _pinned_tokens(window, recent)) // 2:
        index = min(index, recent)
    start, first_kept = visible_start(mark), _place(window, index)
    omitted_tokens = window.cut.omitted_tokens if window.cut else 0
    covered = omitted_tokens + opening.lead_tokens + sums[index] + opening.summary_tokens
    limit = min(limit, covered * 9 // 10)
    least_gain = 0 if manual else int(LEAST_GAIN * available)
    if first_kept <= start or covered - limit <= least_gain or limit < LEAST_SUMMARY // 4:
        return None
    excerpts = _excerpts(window, index, room, most, counter) if aim.keeps_user_turns else Excerpts()
    draft = _draft(window, index, start, first_kept, excerpts, aim)
    note_tokens = excerpts.tokens or (NOTE_FRAME_TOKENS if draft.unshown_turns else 0)
    omitted_messages = (window.cut.omitted_messages if window.cut else 0) + len(opening.lead)
    return CompactionPlan(
        aim.session,
        aim.view,
        draft,
        start,
        previous=str(mark.body.get("summary", "")) if mark is not None and mark.kind == "compaction" else "",
        after_mark=session.after_mark,
        head=window.head,
        head_hash=window.path.head_hash.hex(),
        messages=(window.indexes.row_of[index] if index else 0) + omitted_messages,
        tokens_before=other_tokens + window.tokens,
        kept_tokens=other_tokens + sums[-1] - sums[index] + _pinned_tokens(window, index) + note_tokens,
        summary_tokens=limit,
        factor=aim.scale.factor,
    )


def _draft(
    window: Window, index: int, start: MessageRef, first_kept: MessageRef, excerpts: Excerpts, aim: Aim
) -> Compaction:
    """Return the compaction of the messages from `start` to message `index`, at `first_kept`, without its summary."""
    request = pending_request(window, index)
    hidden_turns = excerpts.hidden_turns(())
    unshown = lost_turns(window) + len(hidden_turns) if aim.keeps_user_turns else 0
    instructions = [pin.place for pin in opening_pins(window, index) if pin.kind == "instruction"]
    return Compaction(
        covers_from=start.seq,
        covers_to=first_kept.seq - 1,
        first_kept=first_kept.seq,
        summary="",
        trigger=aim.trigger,
        kept_ord=first_kept.ord,
        pending_request_ref=request.place if request else None,
        excerpts=tuple(pin.place for pin in excerpts.pins),
        excerpt_tokens=excerpts.limit,
        unshown_turns=unshown or None,
        withheld_turns=hidden_turns[-MOST_WITHHELD:] or None,
        instructions=tuple(place for place in instructions if place < first_kept) or None,
    )


def _excerpts(window: Window, index: int, room: int, most: int, counter: TokenCounter) -> Excerpts:
    """Return the covered user turns that stay visible. Closing texts are for the summary."""
    # Where users say nearly everything, a summary of what they said makes the prompt smaller, not its repetition.
    covered = window.sums[index] + window.opening.pinned_tokens
    return choose_user_turns(window, index, min(room, covered // 4), reserved_places(window, index), counter, most=most)


def _real_available(aim: Aim) -> int:
    """Return the tokens that the target is meant for, fewer if a provider's limit turned out to be smaller."""
    return int(min(aim.share / RECOVER_TO, 1.0) * aim.scale.available)


def _place(window: Window, index: int) -> MessageRef:
    if index == 0:
        return window.first
    return window.row_at(index).ref


def _pinned_tokens(window: Window, index: int) -> int:
    """Return the tokens of the header and of the pins before message `index`, with the pending request."""
    rules = window.rules
    before = (pin for pin in opening_pins(window, index) if pin.place < _place(window, index))
    return window.opening.header_tokens + sum(pin.tokens(rules.wire, rules.images) for pin in before)
