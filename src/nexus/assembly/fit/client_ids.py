"""A client's ids of calls where the ledger has other ids: results may name either, and the model sees the client's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace as replace_fold

from msgspec.structs import replace

from nexus.assembly.fit.display_rules import DisplayRules
from nexus.assembly.fit.fold import Fold
from nexus.text.as_received import with_call_ids
from nexus.tokens.counter import TokenCounter
from nexus.tokens.message_tokens import message_tokens
from nexus.types.message import Message, ToolCall


def with_client_ids(
    messages: Sequence[Message],
    sums: Sequence[int],
    fold: Fold,
    ids: Mapping[str, str],
    rules: DisplayRules,
    counter: TokenCounter,
) -> tuple[list[Message], list[int]]:
    """Return new lists of a window's messages and token sums in which the open calls have a client's ids.

    `ids` are these ids by the stored ones. `fold` waits for them from now on.
    """
    shown_ids = _take_client_ids(fold, ids)
    renamed = [*messages]
    new_sums = [*sums]
    start = len(messages)
    while start and messages[start - 1].role in ("assistant", "tool"):
        start -= 1
    for index in range(start, len(messages)):
        before = messages[index]
        after = with_call_ids(messages[index], shown_ids)
        if after is not before:
            weight, new_weight = (rules.weight(each, message_tokens(each, counter)) for each in (before, after))
            renamed[index] = after
            new_sums[index + 1 :] = [total + new_weight - weight for total in new_sums[index + 1 :]]
    return renamed, new_sums


def copy_of_ids(fold: Fold) -> Fold:
    """Return a copy of a fold whose calls and ids can change independently."""
    return replace_fold(
        fold, waiting=dict(fold.waiting), used_ids=fold.used_ids.copy(), stored_ids=set(fold.stored_ids)
    )


def _take_client_ids(fold: Fold, ids: Mapping[str, str]) -> dict[str, str]:
    """Give the open calls a client's ids, by stored id; return the client's ids by the ids shown before."""
    shown_ids: dict[str, str] = {}
    waiting: dict[str, ToolCall] = {}
    for stored_id, call in fold.waiting.items():
        own_id = ids.get(stored_id, stored_id)
        if own_id != stored_id:
            shown_ids[call.id] = fold.used_ids.add(own_id)
        waiting[own_id] = replace(call, id=shown_ids.get(call.id, call.id))
        fold.stored_ids.add(own_id)
    fold.waiting = waiting
    if fold.last_assistant is not None:
        fold.last_assistant = with_call_ids(fold.last_assistant, shown_ids)
    return shown_ids
