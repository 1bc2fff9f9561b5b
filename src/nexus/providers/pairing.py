"""Results of tool calls in a client's list, paired with their calls where ids do not decide.

Some clients send no ids (Google ADK), or a result with an id that its call lacks (Gemini CLI). Providers require
results directly after their calls, so the order shows which call a result answers.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence

from msgspec.structs import replace

from nexus.text.as_received import with_call_ids, with_ids_of_parts
from nexus.types.message import MADE_IDS, Message, Part, ToolCall, ToolResult, made_ids, with_neutral_parts


def pair_results(messages: Sequence[Message], known_ids: Collection[str] = ()) -> list[Message]:
    """Return the messages with each result under the id of a call, also in items that are sent as received.

    A result with an unknown id answers a call of the assistant's message before it: the first unanswered call of the
    same name, else the first unanswered one. If that message has none, it is a late result of an earlier call. A call
    without its own id takes the result's id. `known_ids` are the ids of calls before these messages.
    """
    paired = [*messages]
    ids = set(known_ids)
    earlier_calls: list[ToolCall] = []
    calls: list[int] = []
    results: list[int] = []
    for index, message in enumerate([*messages, Message("assistant", ())]):
        if any(message.results()):
            results.append(index)
        if message.role != "assistant":
            continue
        if results:
            _pair_group(paired, calls, results, ids, earlier_calls)
            answered = {result.call_id for place in results for result in paired[place].results()}
            earlier_calls += (call for place in calls for call in paired[place].calls())
            earlier_calls = [call for call in earlier_calls if call.id not in answered]
            calls = []
            results = []
        calls.append(index)
        ids.update(call.id for call in message.calls())
    return paired


def order_of_results(messages: Sequence[Message]) -> list[int]:
    """Return the indexes of messages, with results moved before the user's messages that follow their calls.

    Providers take results directly after their calls. Results after a later reply stay, because sent messages must not
    change.
    """
    order: list[int] = []
    open_ids: set[str] = set()
    place = 0
    for index, message in enumerate(messages):
        answered = {result.call_id for result in message.results()} & open_ids
        if message.role == "assistant":
            open_ids = {call.id for call in message.calls()}
            order.append(index)
            place = len(order)
        elif answered and any(messages[between].role == "user" for between in order[place:]):
            order.insert(place, index)
            place += 1
        else:
            follows_calls = place == len(order)
            order.append(index)
            if answered and follows_calls:
                place = len(order)
        open_ids -= answered
    return order


def with_distinct_ids(messages: Sequence[Message]) -> list[Message]:
    """Return the messages in which calls of one message that have one id, each with a result, have different ones."""
    distinct = [*messages]
    for index, message in enumerate(messages):
        ids = [call.id for call in message.calls()]
        if message.role != "assistant" or len({*ids}) == len(ids):
            continue
        end = next((i for i in range(index + 1, len(messages)) if messages[i].role == "assistant"), len(messages))
        answered = [result.call_id for later in messages[index + 1 : end] for result in later.results()]
        repeated = {call_id for call_id in ids if 1 < ids.count(call_id) <= answered.count(call_id)}
        for ends in ((index, index + 1), (index + 1, end)):
            counts: dict[str, int] = {}
            for place in range(*ends):
                distinct[place] = _with_numbered_ids(distinct[place], repeated, counts)
    return distinct


def with_own_ids(message: Message) -> Message:
    """Return a reply whose calls have different ids, as their results, which are still to come, need them."""
    ids = [call.id for call in message.calls()]
    return _with_numbered_ids(message, {call_id for call_id in ids if ids.count(call_id) > 1}, {})


def _with_numbered_ids(message: Message, repeated: Collection[str], counts: dict[str, int]) -> Message:
    """Return a message with `x_2` for the second call or result of a repeated id `x`; `counts` has the number of each id so far."""
    parts: list[Part] = []
    for part in message.parts:
        match part:
            case ToolCall():
                call_id = part.id
            case ToolResult():
                call_id = part.call_id
            case _:
                parts.append(part)
                continue
        number = counts[call_id] = counts.get(call_id, 0) + 1
        new_id = f"{call_id}_{number}"
        if call_id not in repeated or number == 1:
            parts.append(part)
        elif isinstance(part, ToolCall):
            parts.append(replace(part, id=new_id))
        else:
            parts.append(replace(part, call_id=new_id))
    if tuple(parts) == message.parts:
        return message
    return with_ids_of_parts(with_neutral_parts(message, parts))


def _pair_group(
    messages: list[Message],
    calls: Sequence[int],
    results: Sequence[int],
    known_ids: Collection[str],
    earlier_calls: Sequence[ToolCall],
) -> None:
    """Pair the results at some indexes with the calls at others, in place, or else with unanswered calls before them."""
    group_calls = [call for index in calls for call in messages[index].calls()]
    group_results = [result for index in results for result in messages[index].results()]
    foreign = [result for result in group_results if result.call_id not in known_ids]
    if not foreign or not calls:
        return
    answered_ids = {result.call_id for result in group_results}
    answers = _answers(foreign, answered_ids, (group_calls, earlier_calls))

    without_id = {call_id for index in calls for call_id in made_ids(messages[index])}
    new_ids: dict[str, str] = {}
    for number, call in sorted(answers.items()):
        call_id = foreign[number].call_id
        if call.id in without_id and call_id and call_id not in new_ids.values():
            new_ids[call.id] = call_id
    for index in calls:
        messages[index] = _with_own_ids(messages[index], new_ids)

    answered_calls = map(answers.get, range(len(foreign)))
    for index in results:
        messages[index] = _with_answered_calls(messages[index], known_ids, answered_calls, new_ids)


def _answers(
    results: Sequence[ToolResult], answered_ids: Collection[str], call_lists: Iterable[Sequence[ToolCall]]
) -> dict[int, ToolCall]:
    """Return the call that each result answers, by the result's number: of the first list that has one for it."""
    answers: dict[int, ToolCall] = {}
    for calls in call_lists:
        open_calls = [call for call in calls if call.id not in answered_ids]
        for by_name in (True, False):
            for number, result in enumerate(results):
                call = next((call for call in open_calls if call.name == result.name or not by_name), None)
                if number not in answers and call is not None:
                    answers[number] = call
                    open_calls.remove(call)
    return answers


def _with_answered_calls(
    message: Message, known_ids: Collection[str], answered_calls: Iterator[ToolCall | None], new_ids: dict[str, str]
) -> Message:
    """Return a message in which each result with an unknown id has the id and name of the next of the answered calls."""
    parts = [*message.parts]
    for index, part in enumerate(parts):
        if isinstance(part, ToolResult) and part.call_id not in known_ids and (call := next(answered_calls)):
            parts[index] = replace(part, call_id=new_ids.get(call.id, call.id), name=part.name or call.name)
    if tuple(parts) == message.parts:
        return message
    return with_ids_of_parts(with_neutral_parts(message, parts))


def _with_own_ids(message: Message, new_ids: dict[str, str]) -> Message:
    """Return an assistant's message with its results' ids in place of generated call ids."""
    renamed = with_call_ids(message, new_ids)
    if renamed is message:
        return message
    meta = json.loads(message.meta)
    meta[MADE_IDS] = [call_id for call_id in meta[MADE_IDS] if call_id not in new_ids]
    return replace(renamed, meta=json.dumps(meta, ensure_ascii=False, separators=(",", ":")))
