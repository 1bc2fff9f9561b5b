"""What to summarise: everything up to a group's start, so that summary and kept messages come down to a target.

The newest messages stay, calls that wait for their result among them; a summary that is there already is brought up to
date with what it kept at the time, not summarised again. A plan is a value: carrying it out is `nexus.compaction`'s.
"""

from __future__ import annotations

from msgspec import Struct

from nexus.assembly.fit.cut import KEEP_RECENT_TURNS, pending_request
from nexus.assembly.fit.pins import merge_pins
from nexus.assembly.fit.token_sums import first_group_within, projected_sums
from nexus.assembly.fit.window import Window
from nexus.ledger.replay import visible_start
from nexus.types.compaction_plan import RECOVER_TO, CompactionPlan, Trigger
from nexus.types.ledger_entries import Entry, MessageRef

SUMMARY_PART = 8
"""A summary may take this part of the room, and no more than `MOST_SUMMARY` base tokens."""

LEAST_SUMMARY, MOST_SUMMARY = 200, 4_000

LEAST_GAIN = 0.10
"""A compaction that nobody asked for has to free this share of the room."""


class Aim(Struct, frozen=True):
    """What a plan is made for: the room in base tokens, the share of it to come down to, and why."""

    session: str
    view: str
    room: int
    share: float
    trigger: Trigger
    factor: float = 1.0


def plan_compaction(
    window: Window, beside: int, aim: Aim, mark: Entry | None, after_mark: int
) -> CompactionPlan | None:
    """The plan for a window beside which `beside` base tokens stand (system, tools, event); None if it is not worth it.

    By hand, the newest quarter of the messages is kept, and at most the last three turns; otherwise as much as the target
    holds, or the last three turns where they take no more than half of the room that the target is meant for, and it has
    to be worth a tenth of the room.
    """
    if not window.groups:
        return None
    sums = projected_sums(window, 0, 0, window.head)
    limit = min(max(aim.room // SUMMARY_PART, LEAST_SUMMARY), MOST_SUMMARY)
    last = window.groups[-1]
    free = int(aim.share * aim.room) - beside - limit - _pinned(window, last)
    index = min(first_group_within(window, sums, free), last)
    recent = window.turns[-KEEP_RECENT_TURNS] if len(window.turns) >= KEEP_RECENT_TURNS else 0
    if aim.trigger == "manual":
        quarter = first_group_within(window, sums, min(free, (sums[-1] - sums[0]) // 4))
        index = min(max(quarter, recent), last)
    elif sums[-1] - sums[recent] <= (_real_room(aim) - beside - limit - _pinned(window, recent)) // 2:
        index = min(index, recent)
    start, kept = visible_start(mark), _place(window, index)
    hidden = window.cut.left_out_tokens if window.cut else 0
    covered = hidden + window.lead_tokens + sums[index] + window.summary_tokens
    limit = min(limit, covered * 9 // 10)
    least = 0 if aim.trigger == "manual" else int(LEAST_GAIN * aim.room)
    if kept <= start or covered - limit <= least or limit < LEAST_SUMMARY // 4:
        return None
    request = pending_request(window, index)
    before = window.row_of[index] if index else 0
    previous = str(mark.body.get("summary", "")) if mark is not None and mark.kind == "compaction" else ""
    return CompactionPlan(
        aim.session,
        aim.view,
        aim.trigger,
        covers_from=start.seq,
        covers_to=kept.seq - 1,
        first_kept=kept.seq,
        kept_ord=kept.ord,
        asked=request.place if request else None,
        previous=previous,
        after_mark=after_mark,
        head=window.head,
        head_hash=window.head_hash.hex(),
        messages=before + (window.cut.left_out_messages if window.cut else 0) + len(window.lead),
        tokens_before=beside + window.tokens,
        kept_tokens=beside + sums[-1] - sums[index] + _pinned(window, index),
        summary_tokens=limit,
        start_ord=start.ord,
        factor=aim.factor,
    )


def _real_room(aim: Aim) -> int:
    """The room that the target is meant for: less than `room` where a provider's limit turned out to be smaller."""
    return int(min(aim.share / RECOVER_TO, 1.0) * aim.room)


def _place(window: Window, index: int) -> MessageRef:
    return window.first if index == 0 else window.rows[window.row_of[index]].place


def _pinned(window: Window, index: int) -> int:
    """Tokens of the session's start and the pins before message `index`, with the request that what follows answers."""
    request = pending_request(window, index)
    pins = merge_pins(*(pin for pin in window.pins if pin.kind != "asked"), *((request,) if request else ()))
    own = sum(pin.tokens(window.wire, window.images) for pin in pins if pin.place < _place(window, index))
    return window.header_tokens + own
