"""Checks of the requests of one client: what it sent, what became of it behind `mirror`, and at which budgets."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import nexus
from nexus.testing.scripted_replies import Format
from support.mirrored_body import (
    LIST_KEYS,
    SYSTEM_KEYS,
    Json,
    event_of,
    fitted_body,
    instructions_of,
    mirror_arguments,
    python_form,
    results_of,
    text_of,
)
from support.recount import count_text
from support.validity import CHECKS

LARGE = 200_000
"""Tokens of a budget that leaves everything in."""

COUNTED_SHARE = 0.9
"""Least share of the independent count, which has the names of one provider's JSON."""

SHARES = (1.3, 1.6, 2.5)
"""Budgets for which tools and instructions must stay whole, as shares of what is never cut."""


@dataclass
class ClientRequest:
    """One request of a client, and its reply."""

    format: Format
    model: str
    body: Json
    reply: Any = None
    """The reply as `record` takes it."""
    conversation: str = ""
    is_side: bool = False
    """True for a title or a route, which is no part of the conversation."""


@dataclass
class Outcome:
    """What became of one request."""

    request: ClientRequest
    sent: Json | None = None
    """The request as the model got it; None if `mirror` raised `error`."""
    error: Exception | None = None
    action: str = ""
    session: str = ""
    """Label of the session that the reply is recorded in; empty without one."""

    @property
    def lost_results(self) -> list[str]:
        """The tool results that are not sent, or not under the id of a call that is sent.

        One that the client sends twice may be sent once, and a long id may be another one.
        """
        sent = self.sent or {}
        listed = json.dumps(sent.get(LIST_KEYS[self.request.format]))
        texts = {text.strip() for call_id, text in results_of(self.request.format, sent) if listed.count(call_id) > 1}
        received = results_of(self.request.format, self.request.body)
        return [f"result {call_id}: {text[:50]!r}" for call_id, text in received if text.strip() not in texts]

    @property
    def lost_parts(self) -> list[str]:
        """The tools and instructions that are not sent whole, as the beginning of their text.

        An instruction in the list may become a user's note, where its provider does not take it at its place.
        """
        sent = self.sent or {}
        texts = instructions_of(self.request.format, sent)
        texts += [text_of(item) for item in sent.get(LIST_KEYS[self.request.format], ())]
        arrived = "\n".join(texts)
        received = instructions_of(self.request.format, self.request.body)
        lost = [f"instruction {text[:50]!r}" for text in received if text.strip() not in arrived]
        return [*lost, *(["tools"] if self.request.body.get("tools") != sent.get("tools") else [])]

    @property
    def lost_notes(self) -> list[str]:
        """The beginnings of notes in the newest results that are not sent with the newest messages."""
        before, after = (
            json.dumps(event_of(self.request.format, body)) for body in (self.request.body, self.sent or {})
        )
        return [start for start in sorted(set(_NOTE.findall(before))) if start not in after]

    @property
    def new_faults(self) -> list[str]:
        """What the judge of the format finds in the request that is sent, and at no place of the received one."""
        known = {_INDEX.sub("", fault) for fault in _judge(self.request.format, self.request.body)}
        found = _judge(self.request.format, self.sent or {})
        return [fault for fault in found if _INDEX.sub("", fault) not in known]


_INDEX = re.compile(r"\b\d+\b")


def _judge(format_: Format, body: Json) -> list[str]:
    return CHECKS[format_](python_form(body) if format_ == "gemini" else body)


_NOTE = re.compile(r"begin note-\d")


def assemble(nx: nexus.Engine, request: ClientRequest, budget: int) -> nexus.AssembledContext:
    """Return the context of one request. Raises what `mirror` raises."""
    listed, options = mirror_arguments(request.format, request.body, request.model)
    return nx.mirror(listed, conversation=request.conversation, budget=budget, **options)


def recorded_session(nx: nexus.Engine, ctx: nexus.AssembledContext, reply: Any) -> str:
    """Record a reply and return the label of the session that has it. Raises what `record` raises."""
    thread = nx.record(ctx, reply).thread
    return next(session.label for session in nx.sessions() if session.thread == thread)


def replay(requests: Sequence[ClientRequest], budget: int) -> list[Outcome]:
    """Pass requests through `mirror` one after the other, and record their replies."""
    outcomes: list[Outcome] = []
    with nexus.open(ledger=":memory:") as nx:
        for request in requests:
            outcome = Outcome(request)
            outcomes.append(outcome)
            try:
                ctx = assemble(nx, request, budget)
                outcome.action = ctx.mirrored.action if ctx.mirrored else ""
                outcome.sent = fitted_body(ctx, request.format, request.body)
                outcome.session = recorded_session(nx, ctx, request.reply)
            except nexus.NexusError as error:
                outcome.error = error
    return outcomes


def faults(outcomes: Sequence[Outcome], *, is_whole: bool) -> list[str]:
    """Return what is wrong with a conversation, in sentences; `is_whole` if its budget leaves everything in."""
    found: list[str] = []
    for number, outcome in enumerate(outcomes, 1):
        if outcome.error is not None or outcome.sent is None:
            found.append(f"request {number} refused: {type(outcome.error).__name__}: {str(outcome.error)[:200]}")
            continue
        lost = [*outcome.lost_parts, *(outcome.lost_results if is_whole else outcome.lost_notes)]
        found += [f"request {number} lost {part}" for part in lost]
        found += [f"request {number} became invalid: {fault}" for fault in outcome.new_faults]
    sessions, others = (
        {outcome.session for outcome in outcomes if outcome.session and outcome.request.is_side == is_side}
        for is_side in (False, True)
    )
    if len(sessions) > 1:
        actions = ", ".join(outcome.action for outcome in outcomes if not outcome.request.is_side)
        found.append(f"one conversation became {len(sessions)} sessions: {actions}")
    if sessions & others:
        found.append("a title or route is recorded in the conversation's session")
    return found


def smallest_budget(request: ClientRequest) -> nexus.BudgetTooSmall:
    """Return the error that names what is never cut of a request, with its tokens. Raises what else `mirror` raises."""
    with nexus.open(ledger=":memory:") as nx:
        try:
            assemble(nx, request, 1)
        except nexus.BudgetTooSmall as error:
            return error
    raise AssertionError("a budget of one token is enough")


def fixed_tokens(requests: Sequence[ClientRequest]) -> int:
    """Return the tokens of what is never cut, of the request of a conversation that has most of it."""
    return max(smallest_budget(request).needed_tokens for request in requests if not request.is_side)


def budget_faults(requests: Sequence[ClientRequest]) -> list[str]:
    """Return what is wrong at small budgets: from 1.3 times what is never cut on, and below it."""
    try:
        fixed = fixed_tokens(requests)
    except nexus.NexusError as error:
        return [f"fixed parts not counted: {error}"]
    found: list[str] = []
    for share in SHARES:
        outcomes = replay(requests, int(share * fixed))
        found += [f"at {share} times {fixed:,} tokens: {fault}" for fault in faults(outcomes, is_whole=False)]
    for number, request in enumerate(requests, 1):
        if not request.is_side:
            found += [f"request {number}: {fault}" for fault in _refusal_faults(request)]
    return found


def _refusal_faults(request: ClientRequest) -> list[str]:
    """Return what is wrong with the refusal of a request whose tools and instructions do not fit."""
    error = smallest_budget(request)
    found = [
        name
        for name in ("tools", "system")
        if request.body.get("tools" if name == "tools" else _system_key(request)) and not error.parts.get(name)
    ]
    counted, least = error.needed_tokens, least_tokens(request)
    if counted < COUNTED_SHARE * least:
        found.append(f"tools and instructions are {least:,} tokens, what is never cut is counted as {counted:,}")
    try:
        with nexus.open(ledger=":memory:") as nx:
            assemble(nx, request, least * 9 // 10)
        found.append("a budget below tools and instructions is not refused")
    except nexus.BudgetTooSmall:
        pass
    return found


def _system_key(request: ClientRequest) -> str:
    return SYSTEM_KEYS.get(request.format, "")


def least_tokens(request: ClientRequest) -> int:
    """Return an independent count of a request's tools and instructions."""
    tools = json.dumps(request.body.get("tools") or "")
    return count_text("\n".join([*instructions_of(request.format, request.body), tools]))
