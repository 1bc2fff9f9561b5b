"""Conversations to torture with: agents at work, chats, huge results, pictures, Chinese and Japanese, all mixed.

Each kind is made once, with its token counts, and a round takes as many turns of it as it wants. Names and rules stand in
them, so that a summary has something to keep.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator
from functools import cache

from msgspec import Struct

from nexus.assembly.record import with_sizes
from nexus.tokens.counter import get_counter
from nexus.types.ledger_entries import NewEntry, SizedMessage
from nexus.types.message import Image, Message, Text, ToolCall, assistant, tool, user

KINDS = ("tools", "chat", "huge results", "images", "cjk", "mixed")
MOST_TOKENS = 60_000
FIRST_MS = 1_760_000_000_000

WORDS = [
    "the",
    "worker",
    "finished",
    "its",
    "part",
    "of",
    "the",
    "parser",
    "and",
    "wrote",
    "what",
    "it",
    "found",
    "to",
    "the",
    "report",
    "before",
    "the",
    "next",
    "one",
    "began",
    "while",
    "a",
    "request",
    "for",
    "the",
    "cache",
    "came",
    "back",
    "late",
    "so",
    "that",
    "nobody",
    "knew",
    "which",
    "of",
    "the",
    "builds",
    "had",
    "failed",
    "or",
    "why",
    "it",
    "took",
    "that",
    "long",
]
CJK = "構文解析器の作業は終わりましたが、次の報告はまだ届いていません。请检查缓存的配置文件，然后再运行一次测试。이 빌드는 실패했습니다."


class Turn(Struct, frozen=True):
    """One exchange as it is stored, and its tokens in the largest form."""

    messages: tuple[SizedMessage, ...]
    tokens: int

    def entries(self) -> tuple[NewEntry, ...]:
        """What is appended for it."""
        opened = NewEntry(messages=self.messages, at_ms=FIRST_MS, starts_turn=True)
        return opened, NewEntry("completed", at_ms=FIRST_MS)


def prose(dice: random.Random, words: int) -> str:
    """So many words, in sentences."""
    said = " ".join(dice.choices(WORDS, k=max(words, 1)))
    return f"{said[:1].upper()}{said[1:]}."


@cache
def _log() -> tuple[str, ...]:
    dice = random.Random("log")
    return tuple(f"2026-01-0{number % 9 + 1} 12:0{number % 7} {prose(dice, 9)}" for number in range(120))


def lines(dice: random.Random, count: int) -> str:
    """A log of so many lines, many of them alike."""
    return "\n".join(dice.choices(_log(), k=count))


def picture(dice: random.Random) -> Image:
    """A picture by its data; what it shows does not matter here."""
    data = base64.b64encode(dice.randbytes(600)).decode()
    return Image("image/png", data=data, width=dice.choice((64, 512, 1400)), height=dice.choice((64, 512, 900)))


@cache
def talk(kind: str) -> tuple[Turn, ...]:
    """A conversation of the kind with `MOST_TOKENS` tokens or somewhat more."""
    dice = random.Random(f"talk {kind}")
    counter = get_counter()
    found: list[Turn] = []
    tokens = 0
    while tokens < MOST_TOKENS:
        which = dice.choice(KINDS[:-1]) if kind == "mixed" else kind
        messages = with_sizes(_turn(which, len(found), dice), counter)
        size = sum(max(one.size.on(wire) for wire in ("openai", "anthropic", "gemini")) for one in messages)
        found.append(Turn(messages, size))
        tokens += size
    return tuple(found)


def turns(kind: str, tokens: int) -> Iterator[Turn]:
    """The first turns of the conversation, up to about so many tokens; one at least."""
    for turn in talk(kind):
        yield turn
        tokens -= turn.tokens
        if tokens <= 0:
            return


def _turn(kind: str, number: int, dice: random.Random) -> list[Message]:
    asked = f"Look at part {number} in src/part_{number}.py. Never touch legacy_{number % 7}.py. {prose(dice, 12)}"
    if kind == "chat":
        return [user(f"{asked} {prose(dice, 40)}"), assistant(prose(dice, dice.randint(20, 400)))]
    if kind == "cjk":
        return [user(f"{asked} {CJK}"), assistant(CJK * dice.randint(1, 30))]
    if kind == "images":
        shown = Message("user", (Text(asked), picture(dice)))
        return [shown, assistant(f"The picture of part {number} shows a table. {prose(dice, 60)}")]
    said: list[Message] = [user(asked)]
    steps = 1 if kind == "huge results" else dice.randint(1, 5)
    for step in range(steps):
        name = f"t{number}_{step}"
        calls = [ToolCall(f"{name}_{at}", "run", f'{{"command": "make part_{number}"}}') for at in range(1 + step % 2)]
        said.append(assistant(f"I run step {step}.", *calls))
        size = dice.randint(100, 700) if kind == "huge results" else dice.randint(1, 25)
        said += [tool(call.id, f"ERR_{number}{step} in part_{number}.py\n{lines(dice, size)}", "run") for call in calls]
    return [*said, assistant(f"Part {number} is sound; I decided to keep port {5000 + number}. {prose(dice, 20)}")]
