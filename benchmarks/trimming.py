"""LangChain's `trim_messages` on the synthetic session, timed as Nexus is: each round one turn longer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from langchain_core.messages import BaseMessage, HumanMessage, convert_to_openai_messages
from langchain_core.messages.utils import count_tokens_approximately
from msgspec import Struct

from benchmarks.measure import Spent, middle, timed
from benchmarks.policies import DOCUMENTED, as_langchain, trim
from benchmarks.talk import QUESTION, TURN_MESSAGES, Talk
from nexus.providers import openai
from nexus.tokens.message_tokens import message_tokens
from nexus.types.message import Message, user

ROUNDS = 30
APPROXIMATE_ROUNDS = 5


class Trimmed(Struct, frozen=True):
    """One way to count: trimming alone, trimming and turning the result into dicts, messages of history in view."""

    name: str
    trim: Spent
    whole: Spent
    in_view: int


@dataclass(slots=True)
class _List:
    """The session as LangChain messages, with the count of each by id."""

    talk: Talk
    messages: list[BaseMessage] = field(default_factory=list[BaseMessage])
    counts: dict[str | None, int] = field(default_factory=dict[str | None, int])

    def take(self, message: Message) -> None:
        """Adds one message."""
        for item in openai.fragment(message):
            self.messages.append(as_langchain(item, len(self.messages)))
            self.counts[self.messages[-1].id] = message_tokens(message, self.talk.counter).tokens

    def take_turn(self) -> None:
        """Adds a turn."""
        self.talk.turn()
        for message in self.talk.messages[-TURN_MESSAGES:]:
            self.take(message)

    def known(self, some: list[BaseMessage]) -> int:
        """The sum of the counts."""
        return sum(self.counts[message.id] for message in some)


def trimmed(length: int, budget: int) -> list[Trimmed]:
    """The times for a session of `length` messages: with counts known beforehand, and counting approximately."""
    listed = _List(Talk())
    listed.take(Message("system", user("You are brief.").parts))
    for _ in range(length // TURN_MESSAGES):
        listed.take_turn()
    question = HumanMessage(QUESTION, id="question")
    listed.counts["question"] = 20
    ways: tuple[tuple[str, Callable[[list[BaseMessage]], int], int], ...] = (
        ("counts known", listed.known, ROUNDS),
        ("approximate", count_tokens_approximately, APPROXIMATE_ROUNDS),
    )
    return [_time(name, count, rounds, listed, question, budget) for name, count, rounds in ways]


def _time(
    name: str,
    count: Callable[[list[BaseMessage]], int],
    rounds: int,
    listed: _List,
    question: HumanMessage,
    budget: int,
) -> Trimmed:
    trims: list[Spent] = []
    wholes: list[Spent] = []
    in_view = len(listed.messages)
    for _ in range(rounds):
        listed.take_turn()
        call = [*listed.messages, question]
        kept, trim_spent = timed(lambda call=call: trim(call, budget, count, DOCUMENTED))
        _, convert = timed(lambda kept=kept: convert_to_openai_messages(kept))
        trims.append(trim_spent)
        wholes.append(Spent(trim_spent.cpu_ms + convert.cpu_ms, trim_spent.wall_ms + convert.wall_ms))
        in_view = min(in_view, len(kept) - 2)
    return Trimmed(name, middle(trims), middle(wholes), in_view)
