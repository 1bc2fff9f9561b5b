"""What the users of the torture `identity` do by the library: turns, calls, contexts without a turn, and lists.

A way of talking is a generator that yields wherever another program may come between. All have one thread, so that the
same seed gives the same order; a model's answer is where others go on.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import nexus
from nexus.errors import (
    BadEvent,
    HeadMoved,
    IdempotencyConflict,
    LateReply,
    LedgerBusy,
    SessionBusy,
    TurnSuperseded,
)
from torture.identity_judge import IDS, Ask, Judge, Spoken, Talk, about

Steps: TypeAlias = Generator[None, None, None]

TOOLS: Final[tuple[dict[str, Any], ...]] = (
    {"name": "look", "description": "Look.", "input_schema": {"type": "object", "properties": {}}},
)
CALL_ID: Final = "call_1"
"""Each model numbers its calls in the same way."""

FORMATS: Final = ("tagged", "tagged_stable")
"""Profiles of contexts that show what is known of the user."""

LENGTH: Final = 8
"""Questions of a conversation, about; then its user begins another one."""

AT_ONCE: Final = 24
"""Ways of talking that are under way at the same time."""

SUPERSEDED: Final = (TurnSuperseded, HeadMoved, BadEvent)
"""Errors of a turn that another one has replaced, or that somebody else has answered."""

LETTERS: Final = tuple(
    (
        ("user", "Hi"),
        ("assistant", "Hello! How can I help?"),
        ("user", f"Letter {n}. {'The customer keeps the goods at their own risk until they are paid in full. ' * 3}"),
        ("assistant", "9 to 5."),
    )
    for n in range(3)
)
"""Form letters that many conversations have, with a message long enough to be taken for a name of its conversation."""


@dataclass(slots=True)
class Scheduler:
    """The ways of talking under way."""

    judge: Judge
    waiting: list[Steps] = field(default_factory=list[Steps])
    under_way: list[Steps] = field(default_factory=list[Steps])
    depth: int = 0

    def add(self, speaker: Speaker | ListClient, things: int) -> None:
        """Have somebody do so many things."""
        self.waiting += [speaker.steps() for _ in range(things)]

    def run(self) -> None:
        """Run all to their ends, or until a fault was seen."""
        self.judge.dice.shuffle(self.waiting)
        while (self.waiting or self.under_way) and not self.judge.faults:
            self.step()

    def step(self) -> None:
        """Let one go on to the next place where others may come between."""
        while self.waiting and len(self.under_way) < AT_ONCE:
            self.under_way.append(self.waiting.pop())
        ready = [steps for steps in self.under_way if inspect.getgeneratorstate(steps) != inspect.GEN_RUNNING]
        if ready:
            steps = self.judge.dice.choice(ready)
            try:
                next(steps)
            except StopIteration:
                self.under_way.remove(steps)

    def meanwhile(self) -> None:
        """Let others go on while a model answers."""
        if self.depth < 3:
            self.depth += 1
            for _ in range(self.judge.dice.randrange(4)):
                self.step()
            self.depth -= 1


@dataclass(slots=True)
class Speaker:
    """One user, or several that share a session, with the engines of their tenant."""

    judge: Judge
    scheduler: Scheduler
    engines: Sequence[nexus.Engine]
    tenant: str
    users: tuple[int, ...]
    session: str
    """Stem of the labels of its sessions."""
    named: bool = True
    """True if its events name their principal."""
    talk: Talk | None = None

    @property
    def dice(self) -> random.Random:
        """The choices of the round."""
        return self.judge.dice

    def current(self) -> Talk:
        """Return the conversation, or a new one if it is long."""
        if self.talk is None or len(self.talk.asks) >= LENGTH:
            label = f"{self.session}-{len(self.judge.talks)}"
            self.talk = self.judge.talk(self.tenant, self.users, "turns and calls", label)
        return self.talk

    def engine(self) -> nexus.Engine:
        """Return the engine of one of the two programs."""
        return self.dice.choice(self.engines)

    def event(self, talk: Talk) -> tuple[nexus.Event, int, str]:
        """Return an event with its user and text. Its id is new, or one that everybody uses; some come again."""
        dice, user = self.dice, self.dice.choice(self.users)
        text = self.judge.question(talk, user)
        event_id = dice.choice(("", "", f"e{len(talk.asks)}-{user}", *IDS, *IDS))
        waiting = [
            key[1] for key, ask in talk.uses.items() if key[0] == user and ask is talk.asks[-1] and not ask.answer
        ]
        if waiting and dice.random() < 0.4:
            event_id = waiting[0]
        earlier = talk.uses.get((user, event_id))
        if earlier is not None and dice.random() < 0.7:
            text = earlier.text
        return nexus.Event((nexus.Text(text),), id=event_id), user, text

    def options(self, user: int) -> dict[str, Any]:
        """Return the arguments of a call."""
        return {"profile": "bare", "tools": TOOLS, **({"principal": f"u{user}"} if self.named else {})}

    def ask(self, talk: Talk, user: int, event_id: str, text: str) -> Ask:
        """Return the question that an event is, which may have come before."""
        if event_id and (known := talk.uses.get((user, event_id))) is not None:
            return known
        ask = Ask(user, text, len(talk.answered))
        talk.asks.append(ask)
        if event_id:
            talk.uses[user, event_id] = ask
        return ask

    def is_taken(self, talk: Talk, event: nexus.Event, user: int, text: str) -> bool:
        """Return True if the user had this id for another text."""
        known = talk.uses.get((user, event.id)) if event.id else None
        return known is not None and known.text != text

    def reply(self, talk: Talk, ask: Ask, ctx: nexus.AssembledContext, *, calls: bool = True) -> nexus.AgentResult:
        """Check a context and return the model's reply to what it sees there."""
        seen = self.judge.context(talk, ask, ctx.to_openai())
        text = self.judge.answer(talk, ask.user, seen)
        use = [nexus.ToolCall(CALL_ID, "look", "{}")] if calls and self.dice.random() < 0.3 else []
        return nexus.AgentResult((nexus.assistant(text, *use),), nexus.TokenUsage(40, 10))

    # ways ------------------------------------------------------------------------------------------------------------

    def turn(self) -> Steps:
        """Take one turn by `begin`. Some events come again, and some fail before they are answered."""
        talk, nx = self.current(), self.engine()
        event, user, text = self.event(talk)
        is_taken, is_known = self.is_taken(talk, event, user, text), (user, event.id) in talk.uses and bool(event.id)
        what = f"{talk}: event {event.id!r} of user {user} ({text!r})"
        try:
            turn = nx.begin(event, session=talk.label, **self.options(user))
        except IdempotencyConflict:
            self.judge.require(is_taken, f"{what} was taken for another one")
            self.judge.counts["events refused: the id was used for another text"] += 1
            return
        self.judge.require(not is_taken, f"{what} was accepted, though its id had another text")
        self.judge.require(turn.is_new != is_known, f"{what} is {'no' if is_known else 'an'} earlier event, it seems")
        ask = self.ask(talk, user, event.id, text)
        if turn.is_new:
            self.judge.wrote(talk, ask, turn)
            if event.id and self.dice.random() < 0.3:
                self.scheduler.under_way.append(self.again(talk, ask, event))
        if ask.answer and turn.status == "completed":
            replies = turn.replies
            self.judge.require(replies and replies[-1].text() == ask.answer, f"{what} is answered by {replies[-1:]}")
            self.judge.counts["events that came again, answered from the ledger"] += 1
            return
        try:
            yield from self._calls(talk, ask, turn)
        except SUPERSEDED as error:
            self.judge.counts[f"turns given up: {type(error).__name__}"] += 1

    def again(self, talk: Talk, ask: Ask, event: nexus.Event) -> Steps:
        """Go on with a turn from another program, while the first one may still be at work."""
        yield
        turn = self.engine().begin(event, session=talk.label, **self.options(ask.user))
        self.judge.require(not turn.is_new, f"{talk}: event {event.id!r} was stored twice")
        try:
            yield from self._calls(talk, ask, turn)
        except SUPERSEDED as error:
            self.judge.counts[f"turns of two programs given up: {type(error).__name__}"] += 1

    def _calls(self, talk: Talk, ask: Ask, turn: nexus.Turn) -> Steps:
        yield
        while True:
            replies = ask.replies
            ctx = turn.assemble()
            yield
            if self.dice.random() < 0.1:
                turn.fail("timeout", "the model did not answer")
                self.judge.wrote(talk, ask, turn)
                self.judge.counts["turns failed"] += 1
                return
            reply = self.reply(talk, ask, ctx)
            text = reply.messages[0].text()
            yield
            try:
                is_added = turn.record(reply).added
            except LateReply as late:
                self.judge.rejected(talk, text, late.stored_as)
                return
            if is_added:  # else another program has recorded the same words
                self.judge.wrote(talk, ask, turn)
                self.judge.recorded(talk, ask, replies, text, ends=not reply.tool_calls)
            if not reply.tool_calls:
                return
            yield
            try:
                if turn.result(CALL_ID, self.judge.result(talk, ask.user), name="look").added:
                    self.judge.wrote(talk, ask, turn)
            except IdempotencyConflict:  # another program that continues the turn was first
                self.judge.counts["results given up: IdempotencyConflict"] += 1
                return
            yield

    def call(self) -> Steps:
        """Make a whole call; others go on while its model answers."""
        talk, nx = self.current(), self.engine()
        event, user, text = self.event(talk)
        is_taken, asked = self.is_taken(talk, event, user, text), list[Ask]()
        yield

        def send(ctx: nexus.AssembledContext) -> nexus.AgentResult:
            ask = self.ask(talk, user, event.id, text)
            asked.append(ask)
            replies = ask.replies
            reply = self.reply(talk, ask, ctx, calls=False)
            self.scheduler.meanwhile()
            given.append((replies, reply.messages[0].text()))
            return reply

        given = list[tuple[int, str]]()
        what = f"{talk}: event {event.id!r} of user {user} ({text!r})"
        try:
            answer = nexus.call(nx, event, send, session=talk.label, wait=0.0, **self.options(user))
        except IdempotencyConflict:
            is_taken = is_taken or self.is_taken(talk, event, user, text)
            self.judge.require(is_taken, f"{what} was taken for another one")
            return
        except LateReply as late:
            self.judge.rejected(talk, given[-1][1], late.stored_as)
            return
        except (SessionBusy, *SUPERSEDED) as error:
            self.judge.counts[f"calls given up: {type(error).__name__}"] += 1
            return
        self.judge.require(not is_taken, f"{what} was accepted, though its id had another text")
        shown = answer.result.messages[-1].text()
        if given:
            self.judge.recorded(talk, asked[-1], *given[-1], ends=True)
        pair = (text, shown)
        self.judge.require(pair in talk.given, f"{what} is answered by {shown!r}")
        self.judge.counts["calls by nexus.call"] += 1

    def plain(self) -> Steps:
        """Assemble a context, and record question and answer together."""
        talk, nx, user = self.current(), self.engine(), self.dice.choice(self.users)
        text = self.judge.question(talk, user)
        ask = Ask(user, text, len(talk.answered))
        talk.asks.append(ask)
        ctx = nx.assemble(text, session=talk.label, **self.options(user))
        yield
        reply = self.reply(talk, ask, ctx, calls=False)
        yield
        answer = reply.messages[0].text()
        try:
            self.engine().record(ctx, reply) if self.dice.random() < 0.5 else nx.record(ctx, reply)
        except (HeadMoved, LateReply) as error:
            self.judge.counts[f"contexts without a turn given up: {type(error).__name__}"] += 1
            return
        self.judge.recorded(talk, ask, 0, answer, ends=True)

    def glance(self) -> Steps:
        """Assemble a context in a format that shows what is known of the user."""
        talk, nx, user = self.current(), self.engine(), self.dice.choice(self.users)
        options: dict[str, Any] = {**self.options(user), "profile": self.dice.choice(FORMATS)}
        yield
        ctx = nx.assemble(self.judge.question(talk, user), session=talk.label, **options)
        self.judge.whose(talk, ctx.to_openai(), about(talk.tenant, user if self.named else None))

    def steps(self) -> Steps:
        """Do one thing."""
        ways: tuple[tuple[Callable[[], Steps], int], ...] = (
            (self.turn, 5),
            (self.call, 3),
            (self.plain, 2),
            (self.glance, 1),
        )
        (way,) = self.dice.choices([way for way, _ in ways], [weight for _, weight in ways])
        yield from way()


@dataclass(slots=True)
class ListClient:
    """A program that sends its whole list, or the newest part of it, with each call."""

    judge: Judge
    engines: Sequence[nexus.Engine]
    tenant: str
    user: int
    place: dict[str, Any]
    """What it says of itself: `scope`, `principal`, `conversation`, `window`."""
    windows: bool
    """True if it sends only the newest messages now and then."""
    letters: bool
    """True if its conversation begins, or goes on, with a letter that others have too."""
    talk: Talk | None = None
    items: list[Spoken] = field(default_factory=list[Spoken])
    letter: int | None = None
    """Place of the letter in the list."""
    began: int = 0

    @property
    def dice(self) -> random.Random:
        """The choices of the round."""
        return self.judge.dice

    def current(self) -> Talk:
        """Return the conversation, or a new one if the list is long."""
        if self.talk is None or len(self.items) > 2 * LENGTH:
            self.began += 1
            names = " ".join(sorted(self.place)) or "nothing"
            self.talk = self.judge.talk(self.tenant, (self.user,), f"lists by {names}")
            self.items, self.letter = [], None
        return self.talk

    def options(self) -> dict[str, Any]:
        """Return the arguments of a call."""
        place = {"window": self.windows, **self.place}
        if "conversation" in place:
            place["conversation"] = f"{place['conversation']}.{self.began}"
        return place

    def steps(self) -> Steps:
        """Say something, after an edit or a removal now and then, and take the answer; or send the same list again."""
        dice, talk = self.dice, self.current()
        has_answer = not self.items or self.items[-1][0] != "user"
        if self.letters and has_answer and self.letter is None and dice.random() < 0.3:
            self.letter = len(self.items)
            self.items += dice.choice(LETTERS)
        sent_from = 0
        if self.windows and len(self.items) > 4 and dice.random() < 0.6:
            sent_from = dice.randrange(0, len(self.items) - 2, 2)
            if self.letter is not None and dice.random() < 0.5:
                sent_from = self.letter
        if not self.items or self.items[-1][0] != "user":
            self._change(talk, sent_from, 2 * self.windows)
            text = self.judge.question(talk, self.user)
            if dice.random() < 0.2:
                text = f"{text}. {'These are more words of the same message. ' * 6}"
            self.items.append(("user", text))
        full = list(self.items)
        sent = full[min(sent_from, len(full) - 1) :]
        nx = dice.choice(self.engines)
        ctx = nx.mirror([{"role": role, "content": text} for role, text in sent], **self.options())
        yield
        seen = self.judge.exact(talk, ctx.to_openai(), sent, full)
        answer = self.judge.answer(talk, self.user, seen)
        yield
        for _ in range(dice.choice((1, 1, 1, 2))):
            try:
                nx.record(ctx, nexus.AgentResult((nexus.assistant(answer),)))
            except LedgerBusy:
                self.judge.counts["lists not recorded: LedgerBusy"] += 1
            else:
                self.judge.due.add(answer)
        self.judge.counts["lists recorded"] += 1
        if dice.random() < 0.85 and self.items == full and talk is self.talk:  # else it missed the answer
            self.items.append(("assistant", answer))

    def _change(self, talk: Talk, sent_from: int, first: int) -> None:
        """Edit or remove a message that will be sent. A window that lacks its `first` messages lost them by moving."""
        dice, luck = self.dice, self.dice.random()
        places = range(sent_from + first, len(self.items))
        if not places or luck > 0.3:
            return
        at = dice.choice(places)
        if self.letter is not None and at < self.letter + len(LETTERS[0]):
            return
        role, _ = self.items[at]
        if luck < 0.12:
            new = (
                self.judge.question(talk, self.user) if role == "user" else self.judge.answer(talk, self.user, "edited")
            )
            self.items[at] = (role, new)
        elif luck < 0.22:
            begin = at - (at - sent_from) % 2
            del self.items[begin : begin + 2]
        else:
            return
        self.judge.counts["messages edited or removed"] += 1
