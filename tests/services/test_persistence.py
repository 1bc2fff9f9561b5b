"""Document 000's PersistenceService on a real ledger: rows newest first, and the same context as the engine's own."""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nexus
from cli.running import run
from nexus.assembly.record import with_sizes
from nexus.engine.async_engine import AsyncEngine
from nexus.errors import BadSetting
from nexus.services.context import ContextBuilder
from nexus.services.persistence import PersistenceService, owner_session
from nexus.tools import ToolRegistry
from nexus.types.ledger_entries import Commit, NewEntry
from services.dialogues import SEARCH, Exchange, Round, opened, sent, store
from services.tagged.making import HOSTILE
from support.errors import has_code

TALK = (
    Exchange("Search for AI", (Round("I'll search...", "AI development 2025", "ten results"),), "Based on results..."),
    Exchange("Thank you", (), "You're welcome."),
)


def rows_of(exchanges: Any, limit: int = 20, owner: str = "ada") -> list[dict[str, Any]]:
    async def read() -> list[dict[str, Any]]:
        async with opened() as nx:
            await store(nx, exchanges)
            return await PersistenceService(nx).get_history(owner, limit)

    return asyncio.run(read())


def test_signature_is_the_printed_one() -> None:
    """Document 000, "Content Processing" 1: "Messages from `PersistenceService.get_history()` (newest first)"."""
    parameters = inspect.signature(PersistenceService.get_history).parameters
    assert list(parameters) == ["self", "owner_key", "limit"]
    assert parameters["limit"].default == 20
    assert inspect.iscoroutinefunction(PersistenceService.get_history)


def test_rows_are_newest_first_with_roles_runs_times_and_calls() -> None:
    rows = rows_of(TALK)
    assert [(row["role"], row["content"], row["run_id"]) for row in rows] == [
        ("ai", "You're welcome.", "run-2"),
        ("human", "Thank you", "run-2"),
        ("ai", "Based on results...", "run-1"),
        ("tool", "ten results", "run-1"),
        ("ai", "I'll search...", "run-1"),
        ("human", "Search for AI", "run-1"),
    ]
    assert [row["metadata"] for row in rows[3:5]] == [
        {"tool_call_id": "call-1-0", "tool_name": "web_search"},
        {
            "tool_calls": [
                {"id": "call-1-0", "name": "web_search", "arguments": '{"query": "AI development 2025"}'},
            ]
        },
    ]
    times = [row["timestamp"] for row in rows]
    assert times == sorted(times, reverse=True)
    assert all(time.startswith("2025-12-10T08:0") and time.endswith("Z") for time in times)


@pytest.mark.parametrize("limit", [0, -1, 1, 2, 3, 4, 6, 7, 10**9])
def test_limit_gives_the_newest_rows_with_the_same_run_ids(limit: int) -> None:
    assert rows_of(TALK, limit) == rows_of(TALK)[: max(limit, 0)]


def test_unknown_user_has_no_rows() -> None:
    assert rows_of(TALK, owner="grace") == []


def test_users_do_not_see_each_other_or_other_sessions() -> None:
    async def read() -> None:
        async with opened() as nx:
            await store(nx, TALK[:1], "dm:ada")
            await store(nx, TALK[1:], "ada")
            service = PersistenceService(nx)
            assert [row["content"] for row in await service.get_history("ada")][-1] == "Search for AI"
            assert await service.get_history("dm:ada") == []

    asyncio.run(read())


@pytest.mark.parametrize("owner", ["", " ada", "a\nb", "a\x00b", "x" * 300])
def test_owner_key_that_is_no_name_is_rejected(owner: str) -> None:
    with pytest.raises(BadSetting, check=has_code("bad_session_key")):
        rows_of((), owner=owner)


def test_limit_that_is_no_number_is_rejected() -> None:
    with pytest.raises(BadSetting, match="limit"):
        rows_of((), "all")  # type: ignore[arg-type]


def test_owner_session_is_one_to_one() -> None:
    assert [owner_session(key) for key in ("ada", "dm:ada", "0xF00")] == ["dm:ada", "dm:dm:ada", "dm:0xF00"]


def test_rows_before_a_clear_are_not_returned_and_before_a_compaction_are() -> None:
    async def read() -> None:
        async with opened() as nx:
            await store(nx, TALK * 4)
            service = PersistenceService(nx)
            before = await service.get_history("ada", 100)
            assert await nx.run(nx.engine.compact, "dm:ada", share=0.0001) is not None
            assert await service.get_history("ada", 100) == before
            clear = mark_of("clear")
            await nx.run(nx.engine.ledger.commit, "dm:ada", clear)
            assert await service.get_history("ada", 100) == []
            await store(nx, TALK[1:], first=100)
            assert [row["run_id"] for row in await service.get_history("ada", 100)] == ["run-100", "run-100"]

    asyncio.run(read())


def mark_of(kind: Any) -> Any:
    return Commit((NewEntry(kind),))


class CountingEntries:
    """The entries that a store hands out, counted."""

    def __init__(self, nx: AsyncEngine) -> None:
        self.number, self.plain = 0, nx.engine.ledger.store.entries
        nx.engine.ledger.store.entries = self  # type: ignore[method-assign]

    def __call__(self, *args: Any) -> Any:
        for entry in self.plain(*args):
            self.number += 1
            yield entry


def test_large_history_is_read_from_its_end() -> None:
    """A turn of 400 entries behind 300 turns: only the wanted entries and the turn's beginning are read."""

    async def read() -> None:
        async with opened(calibrate=False) as nx:
            append, sized = nx.engine.ledger.append, sized_messages
            for number in range(300):
                event = nexus.user("hi", id=f"run-{number}")
                await nx.run(append, "dm:ada", sized(nx, event), starts_turn=True)
            for number in range(400):
                await nx.run(append, "dm:ada", sized(nx, nexus.assistant(f"step {number}")))
            counted = CountingEntries(nx)
            rows = await PersistenceService(nx).get_history("ada", 20)
            assert {row["run_id"] for row in rows} == {"run-299"}
            assert counted.number <= 20 + 12

    asyncio.run(read())


def sized_messages(nx: AsyncEngine, *messages: Any) -> Any:
    return with_sizes(messages, nx.engine.counter)


def test_history_does_not_block_the_event_loop() -> None:
    """While the store is waiting, other tasks run."""

    async def read() -> None:
        released = threading.Event()
        async with opened() as nx:
            await store(nx, TALK[1:])
            waiting = nx.run(released.wait)
            history = asyncio.ensure_future(PersistenceService(nx).get_history("ada"))
            blocked = asyncio.ensure_future(waiting)
            await asyncio.sleep(0)
            assert not history.done()
            released.set()
            await blocked
            assert len(await history) == 2

    asyncio.run(read())


def test_rows_can_be_imported_again(tmp_path: Path) -> None:
    """Rows of such a system import: `nexus import --session dm:KEY` makes them the history of KEY."""
    rows = rows_of(TALK)
    (tmp_path / ".nexus").mkdir()
    (tmp_path / "rows.json").write_text(json.dumps(rows), "utf-8")
    assert run("import", "rows.json", "--session", "dm:ada", folder=tmp_path).code == 0

    async def read() -> list[dict[str, Any]]:
        async with opened(tmp_path / ".nexus" / "ledger.db") as nx:
            return await PersistenceService(nx).get_history("ada")

    again = asyncio.run(read())
    keys = ("role", "content", "run_id", "timestamp")
    assert [[row[key] for key in keys] for row in again] == [[row[key] for key in keys] for row in rows]


# the law -------------------------------------------------------------------------------------------------------------

TEXTS = HOSTILE.filter(lambda text: bool(text.strip()))
EXCHANGES = st.builds(
    Exchange,
    TEXTS,
    st.lists(st.builds(Round, HOSTILE, HOSTILE, HOSTILE), max_size=2).map(tuple),
    TEXTS,
)
INPUT = "What's the capital of France?"


async def both(exchanges: Any, text: str, *, is_stored: bool) -> None:
    """Compare the builder's messages with those of the profile `tagged` for the same session, input and time."""
    async with opened() as nx:
        await store(nx, exchanges)
        options: Any = {"session": "dm:ada", "profile": "tagged", "tools": [SEARCH]}
        options["user_profile"] = profile = {"prompt_overrides": {"friends_profile": "I prefer short answers."}}
        event = nexus.Event((nexus.Text(text),), id="run-now", at_ms=1_765_400_000_000, timezone="Asia/Shanghai")
        if is_stored:
            turn = await nx.begin(event, **options)
            ctx = await turn.assemble()
        else:
            ctx = await nx.assemble(event, **options)
        registry = ToolRegistry()
        registry.register(SEARCH)
        builder = ContextBuilder(tool_registry=registry, persistence_service=PersistenceService(nx))
        messages = await builder.build_context(
            "ada", profile, text, "2025-12-10T20:53:20Z", "Asia/Shanghai", "run-now" if is_stored else ""
        )
        assert sent({"messages": messages}) == sent(ctx.to_openai())
        assert len(messages) == 5


@settings(max_examples=25)
@given(st.lists(EXCHANGES, max_size=4), TEXTS, st.booleans())
def test_builder_over_persistence_equals_the_profile_tagged(exchanges: Any, text: str, is_stored: bool) -> None:
    """For all histories, stored or not yet stored inputs. `docs/tagged-dialogue.md` lists where the two differ."""
    if not is_stored and exchanges and exchanges[-1].reply is None:
        return
    asyncio.run(both(exchanges, text, is_stored=is_stored))


def test_long_history_is_the_same_in_builder_and_profile() -> None:
    asyncio.run(both(TALK * 15, INPUT, is_stored=True))


@pytest.mark.parametrize("run_id", ["run-now", ""])
def test_current_input_appears_once(run_id: str) -> None:
    """Also for a caller that stored the input and names no run, as the printed signature allows."""

    async def build() -> str:
        async with opened() as nx:
            await store(nx, TALK)
            event = nexus.Event((nexus.Text(INPUT),), id="run-now")
            await nx.begin(event, session="dm:ada", profile="tagged")
            builder = ContextBuilder(persistence_service=PersistenceService(nx))
            built = await builder.build("ada", {}, INPUT, current_run_id=run_id)
            assert built.omitted["of the current run"] == 1
            return "\n".join(message["content"] for message in built.messages[1:])

    assert asyncio.run(build()).count(INPUT) == 1


def test_same_question_in_an_answered_turn_stays_in_the_memory() -> None:
    async def build() -> str:
        async with opened() as nx:
            await store(nx, (Exchange(INPUT, (), "Paris."),))
            builder = ContextBuilder(persistence_service=PersistenceService(nx))
            return "\n".join(m["content"] for m in (await builder.build("ada", {}, INPUT)).messages[1:])

    assert asyncio.run(build()).count(INPUT) == 2
