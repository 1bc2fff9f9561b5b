"""Real sessions with planted sentences: where each is put, and what a user would have written there.

A sentence goes to the beginning, the end, or the sentence boundary nearest to the middle of a message that is there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, TypeAlias, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from benchmarks.planted import PLANTS, Plant
from benchmarks.report import NotRun
from benchmarks.sessions import Call, Session, calls_of, data_folder, sessions
from nexus.assembly.fit.excerpts import is_user_turn
from nexus.interop.detect import read
from nexus.interop.transcript import Step
from nexus.types.message import Message, Text, ToolResult
from nexus.types.request import Event

FIRST = ("first turn, start", "first turn, middle", "first turn, end")
TURN_5, TURN_20, RESULT = "turn 5", "turn 20", "tool result"
PLACES = (*FIRST, TURN_5, TURN_20, RESULT)

JOINED = 5
"""Conversations of tau that make one session: alone they are too short for a turn 20."""

STRIDE = 7
"""How far apart in the list the sentences of one session stand, so that they are of different kinds."""

_P = TypeVar("_P")

Site: TypeAlias = tuple[int, str]
"""The number of a call, and the id of the tool call whose result is meant; empty for what the user said."""

Put: TypeAlias = Callable[[str, str], str]
"""What makes of a text and a sentence the text with the sentence in it."""

_BOUNDARY = re.compile(r"\n|(?<=[.!?。]) ")


class Planted(Struct, frozen=True):
    """A session with its sentences in it, and which stands where."""

    name: str
    calls: tuple[Call, ...]
    plants: dict[str, Plant]


def claude_sessions() -> list[Session]:
    """The sessions of Claude Code."""
    return sessions()


def tau_sessions(number: int, joined: int = JOINED) -> list[Session]:
    """So many sessions of `joined` tau conversations each, one after the other, without their system message."""
    path = data_folder() / "tau_airline.jsonl"
    if not path.is_file():
        raise NotRun(f"no conversations in {path.parent}: NEXUS_DATA names the folder of tau_airline.jsonl")
    conversations = [one.steps for one in islice(read(path), number * joined)]
    found: list[Session] = []
    for begin in range(0, len(conversations), joined):
        steps = [step for one in conversations[begin : begin + joined] for step in one if not _is_system(step)]
        found.append(Session(f"tau {len(found) + 1}", calls_of(steps)))
    return found


def talkative_sessions(number: int, turns: int) -> list[Session]:
    """So many sessions of tau conversations, joined in the order of the file until each has `turns` user turns."""
    path = data_folder() / "tau_airline.jsonl"
    if not path.is_file():
        raise NotRun(f"no conversations in {path.parent}: NEXUS_DATA names the folder of tau_airline.jsonl")
    found: list[Session] = []
    steps: list[Step] = []
    for conversation in read(path):
        steps += [step for step in conversation.steps if not _is_system(step)]
        calls = calls_of(steps)
        if sum(bool(_said(call)) for call in calls) >= turns:
            found.append(Session(f"tau of {turns} turns {len(found) + 1}", calls))
            steps = []
        if len(found) == number:
            break
    return found


def _is_system(step: Step) -> bool:
    return any(message.role == "system" for message in step.messages)


def planted(session: Session, number: int) -> Planted:
    """The session with one sentence at each place that it has; `number` says which sentences."""
    sites = places_of(session.calls)
    chosen = {place: PLANTS[(number + STRIDE * PLACES.index(place)) % len(PLANTS)] for place in sites}
    calls = list(session.calls)
    for place in sorted(sites, key=lambda place: place in _AT):
        at, call_id = sites[place]
        put = _AT.get(place, _in_middle)
        calls[at] = replace(calls[at], event=_with(calls[at], call_id, put, chosen[place].text))
    return Planted(session.name, tuple(calls), chosen)


def places_of(calls: Sequence[Call]) -> Mapping[str, Site]:
    """Where each place is in a session.

    Turns 5 and 20 are the fifth and twentieth message of the user's; where there are not so many, the one nearest to a
    quarter and to three quarters of the calls, if there is one besides the first message and the last call's.
    """
    said = [at for at, call in enumerate(calls) if _said(call)]
    sites: dict[str, Site] = dict.fromkeys(FIRST, (said[0], ""))
    later = [at for at in said[1:] if at < len(calls) - 1]
    for place, turn, share in ((TURN_5, 5, 0.25), (TURN_20, 20, 0.75)):
        if len(later) >= turn - 1:
            sites[place] = (later[turn - 2], "")
        elif later:
            nearest = min(later, key=lambda at: abs(at - share * len(calls)))
            sites[place] = (nearest, "")
    results = [(at, result.call_id) for at, call in enumerate(calls[:-1]) for result in _results(call)]
    if results:
        sites[RESULT] = min(results, key=lambda site: abs(site[0] - len(calls) / 2))
    return sites


def whole_results(call: Call) -> list[str]:
    """The ids of the calls whose results a sentence can be put into."""
    return [result.call_id for result in _results(call)]


def turn_sites(calls: Sequence[Call]) -> dict[str, int]:
    """Return the call of the first turn and of turns 5 and 20, by place."""
    sites = places_of(calls)
    return {place: sites[place][0] for place in (FIRST[1], TURN_5, TURN_20) if place in sites}


def put_into_turn(call: Call, said: str) -> Call:
    """The call with a sentence in the middle of what the user said."""
    return replace(call, event=_with(call, "", _in_middle, said))


def put_into_result(call: Call, call_id: str, said: str) -> Call:
    """The call with a sentence in the middle of one of its results."""
    return replace(call, event=_with(call, call_id, _in_middle, said))


def _said(call: Call) -> str:
    """What the user wrote, without what a client put in their name (`<local-command-caveat>…`, the text of a skill)."""
    if not is_user_turn(Message("user", call.event.content, source=call.event.source)):
        return ""
    texts = (part.text.strip() for part in call.event.content if isinstance(part, Text))
    return "".join(text for text in texts if not text.startswith("<"))


def _results(call: Call) -> list[ToolResult]:
    """The results that have a text of more than one line or sentence, or are a JSON object."""
    found = [result for message in call.event.results for result in message.results()]
    whole = [(result, "".join(_texts(result)).strip()) for result in found]
    return [result for result, text in whole if _BOUNDARY.search(text) or _fields(text)]


def _texts(result: ToolResult) -> list[str]:
    return [item.text for item in result.content if isinstance(item, Text)]


def _with(call: Call, call_id: str, put: Put, said: str) -> Event:
    """The call's event with a sentence in the first text of the user's message, or of a result."""
    event = call.event
    if not call_id:
        return replace(event, content=_in_longest_text(event.content, put, said))
    return replace(event, results=tuple(_in_result(message, call_id, put, said) for message in event.results))


def _in_result(message: Message, call_id: str, put: Put, said: str) -> Message:
    return replace(
        message,
        parts=tuple(
            replace(part, content=_in_longest_text(part.content, put, said))
            if isinstance(part, ToolResult) and part.call_id == call_id
            else part
            for part in message.parts
        ),
    )


def _in_longest_text(parts: tuple[_P, ...], put: Put, said: str) -> tuple[_P | Text, ...]:
    """The parts with the sentence in the longest text among them that is no element of a client's."""
    longest = max(range(len(parts)), key=lambda at: (not _text(parts[at]).startswith("<"), len(_text(parts[at]))))
    return (*parts[:longest], Text(put(_text(parts[longest]), said)), *parts[longest + 1 :])


def _text(part: object) -> str:
    return part.text if isinstance(part, Text) else ""


def _at_start(text: str, said: str) -> str:
    return f"{said}\n\n{text}"


def _at_end(text: str, said: str) -> str:
    return f"{text}\n\n{said}"


def _in_middle(text: str, said: str) -> str:
    """The sentence at the end of a line or sentence nearest to the middle; after the text where it has only one.

    A JSON object gets it as a field between the others.
    """
    fields = _fields(text)
    if fields:
        items = list(fields.items())
        half = len(items) // 2
        return json.dumps(dict([*items[:half], ("note", said), *items[half:]]), ensure_ascii=False)
    inner = [
        found for found in _BOUNDARY.finditer(text) if text[: found.start()].strip() and text[found.end() :].strip()
    ]
    if not inner:
        return f"{text.rstrip()} {said}"
    nearest = min(inner, key=lambda found: abs(found.start() - len(text) // 2))
    between = nearest.group()
    return f"{text[: nearest.start()]}{between}{said}{between}{text[nearest.end() :]}"


def _fields(text: str) -> dict[str, Any]:
    """The fields of a text that is a JSON object; none if it is anything else."""
    try:
        value = json.loads(text) if text.lstrip().startswith("{") else None
    except ValueError:
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


_AT: Mapping[str, Put] = {FIRST[0]: _at_start, FIRST[2]: _at_end}
