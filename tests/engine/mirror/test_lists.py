"""A list that is read on from what the cache has is the list that is read anew."""

from __future__ import annotations

import copy
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.mirror.clients import FORMATS, Format
from nexus.engine.mirror import lists
from nexus.engine.mirror.keys import KeyChain, ListScope
from nexus.engine.mirror.lists import ListCache
from nexus.errors import NexusError
from nexus.text.as_received import ReceivedFormat

SCOPE = ListScope("client")


def conversation(form: Format, turns: int, stem: str) -> list[Any]:
    """Return a client's list: each other turn has calls, with results."""
    items: list[Any] = []
    for number in range(turns):
        items += form.user(f"{stem} {number}")
        calls = [("look", {"at": number}), ("read", {"page": number})] if number % 2 else []
        items += form.echo(form.reply(f"Answer {number}.", calls, f"{stem}{number}"))
        if calls:
            ids = [f"{stem}{number}_{at}" for at in range(len(calls))]
            items += form.results(ids, [f"result {number}", "more"])
            items += form.echo(form.reply("Now I know.", [], f"{stem}{number}b"))
    return [*items, *form.user(f"{stem} last")]


def content_of(cache: ListCache, items: list[Any], name: ReceivedFormat) -> Any:
    """Return all that is known of a list, or the error that reading it raises."""
    try:
        read = cache.read(items, SCOPE, name, FORMATS[name].model)
    except NexusError as error:
        return str(error)
    names = ("system", "system_texts", "names", "messages", "keys", "firsts", "form", "items")
    return [getattr(read, name) for name in names], read.chain.key, read.chain.count, read.calls.ids


def check_reads(name: ReceivedFormat, steps: list[tuple[int, int, int]], cache: ListCache) -> None:
    form = FORMATS[name]
    whole = {stem: conversation(form, 4, stem) for stem in ("one", "two")}
    for cut, tail, stem in steps:
        items = copy.deepcopy(whole["one"][: max(cut % len(whole["one"]), 1)])
        items += [copy.deepcopy(item) for item in whole["two" if stem else "one"][-(tail % 4) or len(whole["one"]) :]]
        assert content_of(cache, items, name) == content_of(ListCache(), items, name)


STEPS = st.lists(st.tuples(st.integers(1, 30), st.integers(0, 3), st.integers(0, 1)), min_size=2, max_size=8)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(get_args(ReceivedFormat)), STEPS)
def test_law_retries_edits_and_branches_are_read_as_if_they_were_new(
    name: str, steps: list[tuple[int, int, int]]
) -> None:
    check_reads(name, steps, ListCache())


def test_build_that_goes_on_in_the_remembered_beginning_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A beginning must not change when a branch goes on from it."""

    def shared(chain: KeyChain) -> KeyChain:
        return chain

    monkeypatch.setattr(KeyChain, "copy", shared)
    with pytest.raises(AssertionError):
        check_reads("openai", [(9, 1, 0), (9, 2, 1), (9, 1, 1), (9, 1, 0)], ListCache())


def test_format_that_only_the_newest_message_shows_is_not_that_of_another_one() -> None:
    plain = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    cache = ListCache()
    for last in ([{"type": "text", "text": "three"}, image], "three"):
        items = [*plain, {"role": "user", "content": last}]
        read, anew = (each.read(items, SCOPE, None, "gpt-4o") for each in (cache, ListCache()))
        assert (read.form, read.messages, read.keys) == (anew.form, anew.messages, anew.keys)


@pytest.mark.parametrize("name", FORMATS)
def test_another_last_message_reads_only_what_is_new(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    read_items = lists.read_items

    def counted(items: Any, *args: Any, **options: Any) -> Any:
        sizes.append(len(items))
        return read_items(items, *args, **options)

    monkeypatch.setattr(lists, "read_items", counted)
    form, cache = FORMATS[name], ListCache()
    items = conversation(form, 20, "one")
    cache.read(items, SCOPE, None, form.model)
    for question in ("another", "and another"):
        sizes.clear()
        cache.read([*items[:-1], *form.user(question)], SCOPE, None, form.model)
        assert sizes == [1]


def marked(items: list[Any], places: tuple[int, ...]) -> list[Any]:
    """Return Anthropic's items with breakpoints on the last block of those at some places from the end."""
    items = copy.deepcopy(items)
    for place in places:
        item = items[-1 - place % len(items)]
        if isinstance(item["content"], str):
            item["content"] = [{"type": "text", "text": item["content"]}]
        block = item["content"][-1]
        block["cache_control"] = {"type": "ephemeral"}
        if isinstance(block.get("content"), list):
            block["content"][-1]["cache_control"] = {"type": "ephemeral", "ttl": "1h"}
    return items


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 30), st.lists(st.integers(0, 8), max_size=4).map(tuple)), min_size=2, max_size=8)
)
def test_law_lists_whose_breakpoints_move_are_read_as_if_they_were_new(
    steps: list[tuple[int, tuple[int, ...]]],
) -> None:
    cache = ListCache()
    whole = conversation(FORMATS["anthropic"], 4, "one")
    for size, places in steps:
        items = marked(whole[: max(size % len(whole), 1)], places)
        assert content_of(cache, items, "anthropic") == content_of(ListCache(), items, "anthropic")


def test_list_whose_breakpoints_moved_reads_only_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    read_items = lists.read_items

    def counted(items: Any, *args: Any, **options: Any) -> Any:
        sizes.append(len(items))
        return read_items(items, *args, **options)

    monkeypatch.setattr(lists, "read_items", counted)
    form, cache = FORMATS["anthropic"], ListCache()
    items = marked(conversation(form, 20, "one"), ())
    for item in items:  # as Claude Code writes them
        if isinstance(item["content"], str):
            item["content"] = [{"type": "text", "text": item["content"]}]
    cache.read(marked(items[:-4], (0, 1)), SCOPE, "anthropic", form.model)
    sizes.clear()
    cache.read(marked(items, (0, 6)), SCOPE, "anthropic", form.model)
    assert sizes == [4]


def test_breakpoint_within_a_block_that_goes_out_as_received_is_another_block() -> None:
    cache = ListCache()
    for fields in ({}, {"cache_control": {"type": "ephemeral"}}):
        texts = [{"type": "text", "text": "found", **fields}]
        result = {"type": "search_result", "source": "u", "title": "t", "content": texts}
        items = [{"role": "user", "content": [result, {"type": "text", "text": "what is it?"}]}]
        assert content_of(cache, items, "anthropic") == content_of(ListCache(), items, "anthropic")
