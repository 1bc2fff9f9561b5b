"""The script of a year in one session: what the user writes, what the model calls, what its tools return, and when.

Everything follows from the seed and a turn's number, so the program and the server of the model read the same script in
two processes. Some turns state a fact that nothing else has, and later ones ask for it in other words.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from functools import cache
from typing import Final

from benchmarks.kinds import pieces
from msgspec import Struct

from nexus.text.as_received import ReceivedFormat
from nexus.types.message import ToolCall

SESSION = "year"
MODELS: Final[dict[ReceivedFormat, str]] = {
    "openai": "gpt-4o",
    "responses": "gpt-5",
    "anthropic": "claude-opus-4-5",
    "gemini": "gemini-2.5-flash",
}
"""A model for each format."""

START_MS, YEAR_MS = 1_767_600_000_000, 365 * 86_400_000
MODEL_TURNS = (5, 40)
"""Fewest and most turns until the user takes another model."""

KINDS = ("prose", "code", "JSON", "logs", "CJK")
NOTES = 8
"""Files in the workspace that the model reads and searches."""

ASKING = "I told you"
"""How a user's question for a fact begins."""

_REQUESTS = (
    "Please look into the {part} again, the {what} from {place} does not fit.",
    "What is the state of the {part}? {place} asked about the {what}.",
    "The {what} of the {part} failed on {place}, find out why.",
    "Compare the {what} with the one from {place} and tell me about the {part}.",
    "Schau dir bitte {part} noch einmal an, bei {place} stimmt {what} nicht.",
    "Warum ist {what} seit gestern langsamer? Betroffen sind {part} und {place}.",
    "Peux-tu vérifier {part} ? Le {what} de {place} me semble faux.",
    "Revisa {part} otra vez: el {what} de {place} no coincide con el informe.",
    "{place} の {part} を確認してください。{what} が合いません。",
    "请再检查一下 {place} 的 {part},{what} 有问题。",
)
_PARTS = ("gateway", "invoice export", "vault", "search index", "sensor board", "boat list", "key ring", "locker plan")
_WHATS = ("checksum", "code", "calibration run", "number", "word count", "schedule", "constant", "backup")
_PLACES = ("Lisbon", "the gym", "warehouse 4", "Marlene's team", "the night shift", "Porto", "the harbor office")


class Fact(Struct, frozen=True):
    """Something that one message of the year states, the question for it, and words that a model searches for."""

    name: str
    turn: int
    statement: str
    secret: str
    question: str
    keywords: str
    in_result: bool = False
    """True if it is in the middle of a result that is larger than the window."""


class Year:
    """The script.

    Args:
        turns: Number of turns.
        seed: Begins the random choices.
        window: Tokens of the models' windows. The sizes of texts follow from it.
    """

    def __init__(self, turns: int, seed: int, window: int) -> None:
        self.turns, self.seed, self.window = turns, seed, window
        self.facts = _facts(turns, random.Random(f"{seed} facts"))
        self.asked = _asked(turns, self.facts)
        self.models = _models(turns, random.Random(f"{seed} models"))

    def at_ms(self, turn: int) -> int:
        """Return the time of a turn: the year has its turns at equal distances, some minutes early or late."""
        jitter_ms = random.Random(f"{self.seed} time {turn}").randrange(600_000)
        return START_MS + YEAR_MS * turn // self.turns + jitter_ms

    def text(self, turn: int) -> str:
        """Return the user's message of a turn."""
        if turn in self.asked:
            return f"{ASKING} about the {self.asked[turn].name} some time ago. {self.asked[turn].question}?"
        dice = random.Random(f"{self.seed} text {turn}")
        request = dice.choice(_REQUESTS).format(
            part=dice.choice(_PARTS), what=dice.choice(_WHATS), place=dice.choice(_PLACES)
        )
        stated = [fact.statement for fact in self.facts if fact.turn == turn and not fact.in_result]
        size = dice.choices(("tiny", "short", "medium", "long", "file"), (6, 44, 34, 12, 4))[0]
        chars = {"tiny": (0, 1), "short": (20, 240), "medium": (240, 1_000), "long": (1_000, 4_000)}
        fewest, most = chars.get(size, (2_000, max(self.window // 2, 2_001)))
        kind = dice.choice(("code", "JSON", "logs") if size == "file" else ("prose", "prose", "CJK", "emoji"))
        pasted = _excerpt(dice, kind, dice.randrange(fewest, most))
        body = f"Here is the file:\n```\n{pasted}\n```" if size == "file" else pasted
        return "\n".join((f"{turn}. {request}", *stated, *([body] if body else [])))

    def steps(self, turn: int) -> list[list[ToolCall]]:
        """Return the tool calls of a turn's replies: one to three, one after the other or at once."""
        dice = random.Random(f"{self.seed} calls {turn}")
        calls = [self._call(dice, turn, place) for place in range(dice.randint(1, 3))]
        return [calls] if dice.random() < 0.5 else [[call] for call in calls]

    def answer(self, turn: int) -> str:
        """Return the model's answer at the end of a turn."""
        dice = random.Random(f"{self.seed} answer {turn}")
        kind = dice.choice(("prose", "prose", "prose", "CJK", "code"))
        return f"Answer {turn}: {_excerpt(dice, kind, dice.choice((40, 200, 200, 600, 1_500)))}"

    def result(self, item: int) -> str:
        """Return the record of an item: of 50 characters, and seldom of more than the window."""
        dice = random.Random(f"{self.seed} result {item}")
        most = self.window * 8
        sizes = ((50, 300), (300, 3_000), (3_000, most // 12), (most // 12, most // 4), (most * 5 // 8, most))
        chars = dice.randrange(*dice.choices(sizes, (42, 36, 18, 3, 1))[0])
        stated = [fact for fact in self.facts if fact.in_result and fact.turn * 10 == item]
        if not stated:
            return _excerpt(dice, dice.choice(KINDS), chars)
        half = _excerpt(dice, "logs", most * 3 // 4)
        return f"{half}\n{stated[0].statement}\n{half}"

    def notes(self) -> dict[str, str]:
        """Return the files of the workspace."""
        dice = random.Random(f"{self.seed} notes")
        return {f"notes/{number}.txt": _excerpt(dice, KINDS[number % 5], 6_000) for number in range(NOTES)}

    def _call(self, dice: random.Random, turn: int, place: int) -> ToolCall:
        name = dice.choices(("fetch", "read_file", "search_files"), (70, 20, 10))[0]
        if any(fact.in_result and fact.turn == turn for fact in self.facts) and not place:
            name = "fetch"
        arguments = {
            "fetch": {"item": turn * 10 + place},
            "read_file": {"path": f"notes/{dice.randrange(NOTES)}.txt", "last_line": dice.randint(3, 60)},
            "search_files": {"text": dice.choice(("ERROR", "quantity", "def ", "search")), "files": "notes/1.txt"},
        }
        return ToolCall(f"call_{turn}_{place}", name, json.dumps(arguments[name]))


def _facts(turns: int, dice: random.Random) -> tuple[Fact, ...]:
    first, second, third, result = 10, max(turns // 10, 12), turns // 2, turns // 4
    secrets = [f"{word}-{dice.randrange(1_000, 10_000)}" for word in ("amber-falcon", "kestrel", "Kahn", "zeta")]
    return (
        Fact(
            "vault",
            first,
            f"One thing to remember: the vault code word is {secrets[0]}.",
            secrets[0],
            "What was the code word of the vault",
            '"code word" vault',
        ),
        Fact(
            "locker",
            second,
            f"By the way, Marlene got a new locker at the gym, it has the number {secrets[1]} now.",
            secrets[1],
            "Which number has Marlene's locker in the gym",
            "Marlene locker gym number",
        ),
        Fact(
            "boat house",
            third,
            f"Merk dir: der Ersatzschlüssel für das Bootshaus liegt unter {secrets[2]}.",
            secrets[2],
            "Wo liegt der Ersatzschlüssel vom Bootshaus",
            "Ersatzschlüssel Bootshaus",
        ),
        Fact(
            "sensor",
            result,
            f"2026-03-09T11:00:00Z INFO sensors calibration constant of sensor Q7 set to {secrets[3]}",
            secrets[3],
            "What is the calibration constant of sensor Q7",
            "calibration constant sensor Q7",
            in_result=True,
        ),
    )


def _asked(turns: int, facts: Sequence[Fact]) -> dict[int, Fact]:
    """Return the turns that ask for a fact: each soon after it was stated, at tenths of the year, and at its end."""
    asked = {fact.turn + max(turns // 50, 6): fact for fact in facts}
    for tenth in range(3, 10):
        known = [fact for fact in facts if fact.turn < turns * tenth // 10]
        asked[turns * tenth // 10 + 1] = known[tenth % len(known)]
    return asked | {turns - place: fact for place, fact in enumerate(facts)}


def _models(turns: int, dice: random.Random) -> list[str]:
    """Return the model of each turn, from 1; index 0 is the first one's."""
    names, models = list(MODELS.values()), list[str]()
    while len(models) <= turns:
        others = [name for name in names if not models or name != models[-1]]
        models += [dice.choice(others)] * min(dice.randint(*MODEL_TURNS), max(turns // 10, 5))
    return models


@cache
def _corpus(kind: str) -> str:
    return "".join(pieces(kind, 20))


def _excerpt(dice: random.Random, kind: str, chars: int) -> str:
    """Return so many characters of a kind, from anywhere."""
    corpus = _corpus(kind)
    start = dice.randrange(len(corpus))
    return (corpus * (chars // len(corpus) + 2))[start : start + chars]
