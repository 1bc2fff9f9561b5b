"""Who said what, for the torture `identity`: texts and lists in plain Python, without any key or hash of Nexus.

A text has a mark that only one message of one conversation has, or none: then others say the same. `q3-17-5` is message 5
of conversation 17, asked by user 3; `a3-17-6` is an answer to it, and `r3-17-7` a tool's result.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, TypeAlias

Spoken: TypeAlias = tuple[str, str]
"""Role and text of a message."""

QUESTIONS: Final = ("Hi", "Hello", "When are you open?", "Thanks!", "Yes", "ok", "And on Sunday?", "1")
ANSWERS: Final = ("Hello! How can I help?", "9 to 5.", "Thanks!", "You're welcome.", "Yes.")
IDS: Final = ("1", "7")
"""Ids of events that everybody uses."""

MARKED: Final = 0.6
"""Share of the texts that only one message has."""

MARK: Final = re.compile(r"\b([qar])(\d+)-(\d+)-(\d+)\b")
ABOUT: Final = re.compile(r"profile-[\w-]+\.")
SHOWN_FAULTS: Final = 12


@dataclass(eq=False, slots=True)
class Ask:
    """One question, however often it is delivered."""

    user: int
    text: str
    known: int = 0
    """Number of acknowledged exchanges of the conversation when it was accepted."""
    replies: int = 0
    """Replies of the model that were acknowledged, those with tool calls included."""
    answer: str = ""
    """The acknowledged answer that ended it."""
    writers: list[object] = field(default_factory=list[object])
    """Those that had a write to its turn acknowledged, in the order of their first ones."""


@dataclass(eq=False, slots=True)
class Talk:
    """One conversation of one user, or of several in a session that they share."""

    number: int
    tenant: str
    users: tuple[int, ...]
    way: str
    label: str = ""
    asks: list[Ask] = field(default_factory=list[Ask])
    answered: list[Spoken] = field(default_factory=list[Spoken])
    """Questions with their acknowledged answers, in the order in which these were acknowledged."""
    given: set[Spoken] = field(default_factory=set[Spoken])
    """Questions with the texts that the model gave to them."""
    late: set[str] = field(default_factory=set[str])
    """Marked texts of replies that were rejected as late: the conversation must not have them."""
    uses: dict[tuple[int, str], Ask] = field(default_factory=dict[tuple[int, str], Ask])
    """Questions by the user and the id of the event."""

    def __str__(self) -> str:
        return f"conversation {self.number} ({self.way}, {self.tenant}, {self.label or 'a list'})"


class Judge:
    """Makes all texts, and finds those that are where they do not belong."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.talks: list[Talk] = []
        self.counts = Counter[str]()
        self.faults: list[str] = []
        self.due: set[str] = set()
        """Acknowledged replies: each must be in the tables."""
        self._answers: dict[str, tuple[Talk, str, str]] = {}
        """Conversation, question and text by the mark of an answer."""
        self._numbers = count(1)

    # texts ---------------------------------------------------------------------------------------------------------

    def talk(self, tenant: str, users: Sequence[int], way: str, label: str = "") -> Talk:
        """Begin a conversation."""
        talk = Talk(len(self.talks), tenant, tuple(users), way, label)
        self.talks.append(talk)
        return talk

    def question(self, talk: Talk, user: int) -> str:
        """Return a text for a user to say: a common one, or one that nobody else ever says."""
        return self._text(QUESTIONS, "q", talk, user, "")

    def answer(self, talk: Talk, user: int, seen: str) -> str:
        """Return the model's answer to the question that it saw."""
        text = self._text(ANSWERS, "a", talk, user, f" to «{seen}»")
        talk.given.add((seen, text))
        for mark in marks(text, "a"):
            self._answers.setdefault(mark, (talk, seen, text))
        return text

    def result(self, talk: Talk, user: int) -> str:
        """Return a tool's result."""
        return self._text(ANSWERS, "r", talk, user, "")

    def _text(self, pool: Sequence[str], kind: str, talk: Talk, user: int, more: str) -> str:
        common = self.dice.choice(pool)
        if self.dice.random() > MARKED:
            return common
        return f"{common} {self.mark(kind, talk, user)}{more}"

    def mark(self, kind: str, talk: Talk, user: int) -> str:
        """Return a word that is nowhere else."""
        return f"{kind}{user}-{talk.number}-{next(self._numbers)}"

    # what is checked -----------------------------------------------------------------------------------------------

    def require(self, holds: object, what: str) -> None:
        """Note a fault unless it holds: a model's errors are caught, so that it cannot raise."""
        if not holds:
            self.faults.append(what)

    def body(self, talk: Talk, body: dict[str, Any]) -> list[Spoken]:
        """Check that a request has only words of its conversation; return what is said in it, without system messages."""
        self.counts["contexts"] += 1
        self.counts[f"contexts: {talk.way}"] += 1
        self.only(talk, json.dumps(body, ensure_ascii=False), "a context")
        return spoken(body["messages"])

    def only(self, talk: Talk, text: str, where: str) -> None:
        """Check that a text has no word of another conversation."""
        for kind, user, number, at in MARK.findall(text):
            if int(number) != talk.number:
                other = self.talks[int(number)]
                whose = "principal" if not {*other.users} & {*talk.users} else "conversation"
                whose = "tenant" if other.tenant != talk.tenant else whose
                word = f"{kind}{user}-{number}-{at}"
                self.faults.append(f"{where} of {talk} has the word {word} of another {whose}: {other}")

    def order(self, talk: Talk, said: Sequence[Spoken], *, known: int = 0, where: str = "a context") -> None:
        """Check that each answer stands behind its question, and that the first `known` exchanges are all there."""
        pairs = exchanges(said)
        for pair in pairs:
            asked, text = pair
            self.require(text not in talk.late, f"{where} of {talk} shows the late reply {text!r}")
            for mark in marks(text, "a")[:1]:
                _, own, _ = self._answers[mark]
                self.require(asked == own, f"{where} of {talk} has {text!r} under the question {asked!r}")
            self.require(
                pair in talk.given, f"{where} of {talk} has {text!r} under {asked!r}, which got no such answer"
            )
        missing = first_missing(talk.answered[:known], pairs)
        self.require(missing is None, f"{where} of {talk} lacks the answer {missing}")
        asks = {ask.text for ask in talk.asks}
        others = [text for role, text in said if role == "user" and text not in asks]
        self.require(not others, f"{where} of {talk} has messages that nobody sent there: {others[:3]}")

    def whose(self, talk: Talk, body: dict[str, Any], known: str) -> None:
        """Check that a request has only words of its conversation, and of what is known of users exactly `known`."""
        self.body(talk, body)
        words = {*ABOUT.findall(json.dumps(body))}
        self.require(
            words == {known} - {""}, f"a context of {talk} has {sorted(words)} of users' profiles, not {known!r}"
        )
        self.counts["contexts with what is known of the user"] += bool(words)

    def context(self, talk: Talk, ask: Ask, body: dict[str, Any]) -> str:
        """Check the context of a question's next call; return the question that the model sees."""
        said = self.body(talk, body)
        self.order(talk, said, known=ask.known)
        seen = next((text for role, text in reversed(said) if role == "user"), "")
        self.require(seen == ask.text, f"a context of {talk} asks {seen!r}, not {ask.text!r}")
        return seen

    def exact(self, talk: Talk, body: dict[str, Any], sent: Sequence[Spoken], full: Sequence[Spoken]) -> str:
        """Check the context of a client's list: what was sent, behind earlier messages of the whole list if any."""
        said = self.body(talk, body)
        length = len(said)
        is_list = said == [*sent] or (length > len(sent) and said == [*full[-length:]])
        self.require(is_list, f"a context of {talk} is not the client's list: {_difference(said, sent)}")
        if length > len(sent):
            self.counts["windows with earlier messages put back"] += 1
        return said[-1][1] if said else ""

    # acknowledgments -----------------------------------------------------------------------------------------------

    def recorded(self, talk: Talk, ask: Ask, replies: int, text: str, *, ends: bool) -> None:
        """Note an acknowledged reply; `replies` is the number of acknowledged ones when its context was assembled."""
        taken = f"{talk} took {text!r} for {ask.text!r}, which another program had answered meanwhile"
        self.require(ask.replies == replies and not ask.answer, taken)
        ask.replies += 1
        self.due.add(text)
        if ends:
            ask.answer = text
            talk.answered.append((ask.text, text))
        self.counts["replies acknowledged"] += 1

    def wrote(self, talk: Talk, ask: Ask, writer: object) -> None:
        """Note an acknowledged write of a program to a question's turn. Who wrote first is out once another has."""
        if writer not in ask.writers:
            ask.writers.append(writer)
        is_newest = writer is ask.writers[-1]
        self.require(is_newest, f"a program that another one replaced wrote to the turn of {ask.text!r} of {talk}")

    def rejected(self, talk: Talk, text: str, stored_as: str) -> None:
        """Note a late reply: it must be stored apart."""
        if marks(text, "a"):
            talk.late.add(text)
            self.due.add(text)
        self.require(stored_as, f"the late reply {text!r} of {talk} is lost")
        self.counts["late replies"] += 1

    def stored(self, rows: Iterable[tuple[str, str]]) -> None:
        """Check all answers in the tables, as (tenant, text): each acknowledged one is there, for its tenant alone."""
        found: dict[str, set[str]] = {}
        for tenant, text in rows:
            for mark in marks(text, "a"):
                found.setdefault(mark, set()).add(tenant)
        for mark, (talk, _, text) in self._answers.items():
            tenants = found.get(mark, set())
            self.require(tenants <= {talk.tenant}, f"{text!r} of {talk} is stored for {sorted(tenants)}")
            self.require(tenants or text not in self.due, f"the reply {text!r} of {talk} is lost")

    def verdict(self) -> str:
        """Return the faults, the first ones in full; empty if there are none."""
        return "\n".join([f"{len(self.faults)} violations:", *self.faults[:SHOWN_FAULTS]]) if self.faults else ""


def about(tenant: str, user: int | None) -> str:
    """Return the word that a user's profile has; without a user the local one's, whose tenant is `local`."""
    if user is None:
        return "profile-of-the-operator." if tenant == "local" else ""
    return f"profile-{tenant}-{user}."


def marks(text: str, kind: str) -> list[str]:
    """Return the marks of one kind in a text."""
    return [match.group() for match in MARK.finditer(text) if match[1] == kind]


def spoken(messages: Sequence[dict[str, Any]]) -> list[Spoken]:
    """Return roles and texts of messages of a chat completion, without system messages."""
    return [(item["role"], _text_of(item.get("content"))) for item in messages if item["role"] in ("user", "assistant")]


def exchanges(said: Sequence[Spoken]) -> list[Spoken]:
    """Return each answer behind its question."""
    pairs, question = list[Spoken](), ""
    for role, text in said:
        if role == "user":
            question = text
        elif role == "assistant":
            pairs.append((question, text))
    return pairs


def first_missing(wanted: Sequence[Spoken], pairs: Sequence[Spoken]) -> Spoken | None:
    """Return the first wanted pair that does not follow the others in order; None if all do."""
    rest = iter(pairs)
    return next((pair for pair in wanted if pair not in rest), None)


def _text_of(content: Any) -> str:
    if isinstance(content, str) or content is None:
        return content or ""
    return "\n".join(part.get("text", "") for part in content)


def _difference(said: Sequence[Spoken], sent: Sequence[Spoken]) -> str:
    """Return the end of both lists, from their last difference on."""
    pairs = zip(reversed(said), reversed(sent), strict=False)
    same = next((at for at, (ours, theirs) in enumerate(pairs) if ours != theirs), min(len(said), len(sent)))
    return f"shown {[*said][-same - 2 :][:3]}, sent {[*sent][-same - 2 :][:3]} (lengths {len(said)}, {len(sent)})"
