"""Every recorded call is made again, byte for byte, whatever the session went through since."""

from __future__ import annotations

import hashlib
import json
import math
import random
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import nexus
from nexus.assembly.record import build_commit
from nexus.context import AssembledContext
from nexus.engine import Engine
from nexus.engine.analysis.explain import Explanation
from nexus.engine.analysis.replay import ReplayOverrides
from nexus.errors import BadEvent, BadReference, BudgetTooSmall, CannotReplay, NoSuchSession
from nexus.interop.detect import read
from nexus.ledger.integrity import check
from nexus.ledger.recorded_calls import recorded_call
from nexus.ledger.records import BlobRecord
from nexus.ledger.sqlite import SqliteLedger
from nexus.tokens.counter import get_counter
from nexus.types.ledger_entries import Commit, Compaction, MessageRef, NewEntry
from nexus.types.message import Image, Message, Text, Thinking, ToolCall, assistant, tool, user
from nexus.types.request import Event, Request
from nexus.types.settings import Settings
from support.replay import Mark, append, call_points, mark

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
MODELS = ("claude-sonnet-4-5", "gpt-4o", "gemini-2.5-pro")
TOOL: dict[str, Any] = {
    "name": "look",
    "description": "Looks.",
    "parameters": {"type": "object", "properties": {"at": {}}},
}


def own(ctx: AssembledContext) -> dict[str, Any]:
    """The body in the model's own form."""
    return {"openai": ctx.to_openai, "anthropic": ctx.to_anthropic, "gemini": ctx.to_gemini}[
        ctx.accounting.model_info.provider_format
    ]()


class Walk:
    """A session's life by chance: calls in several views, cuts, marks, forks. `sent` has each recorded body."""

    def __init__(self, nx: Engine, workspace: Path, seed: int) -> None:
        self.nx, self.workspace, self.chance = nx, workspace, random.Random(seed)
        self.sessions = ["main"]
        self.open_calls: dict[str, list[str]] = {}
        self.sent: list[tuple[str, int, str, AssembledContext]] = []
        self.calls = self.kept = 0
        self.kinds: tuple[str, ...] = (
            "say",
            "files",
            "compact",
            "undo",
            "redo",
            "pin",
            "unpin",
            "fork",
            "rewind",
            "rename",
            "clear",
        )

    def step(self) -> None:
        session = self.chance.choice(self.sessions)
        kind = self.chance.choices(self.kinds, (60, 6, 5, 4, 3, 5, 3, 4, 3, 2, 1)[: len(self.kinds)])[0]
        try:
            getattr(self, kind)(session)
        except (BudgetTooSmall, BadEvent, BadReference, NoSuchSession):
            return

    def say(self, session: str) -> None:
        chance, model = self.chance, self.chance.choice(MODELS[: self.chance.randint(1, 3)])
        waiting = self.open_calls.pop(session, None)
        event: Any = " ".join(["word"] * chance.randint(1, 120)) + f" {self.calls}"
        images = (Image("image/png", PIXEL, width=1, height=1),) if chance.random() < 0.1 else ()
        if waiting and chance.random() < 0.85:
            event = [tool(call, f"line {call}\n" * chance.choice((1, 20, 900)), "look") for call in waiting]
            images = ()
        tools = () if chance.random() < 0.1 else (TOOL,)
        config = {"temperature": 0.5} if chance.random() < 0.1 else {}
        budget = chance.choice((1_500, 2_000, 2_500, 9_000, None))
        ctx = self.nx.assemble(
            event, session=session, model=model, tools=tools, budget=budget, images=images, model_config=config
        )
        body = json.dumps(own(ctx))
        self.calls += 1
        parts: list[Any] = [Thinking("hm", "c2ln")] if chance.random() < 0.3 else []
        if chance.random() < 0.5:
            ids = [f"c{self.calls}_{n}" for n in range(chance.randint(1, 3))]
            self.open_calls[session] = ids
            parts += [ToolCall(one, "look", '{"at": 1}') for one in ids]
        else:
            parts.append(Text("answer " * chance.randint(1, 80)))
        done = self.nx.record(ctx, nexus.AgentResult((Message("assistant", tuple(parts), model=model),)))
        self.sent.append((session, done.turn, body, ctx))

    def files(self, session: str) -> None:
        name = self.chance.choice(("AGENTS.md", "SOUL.md", "MEMORY.md"))
        (self.workspace / name).write_text(f"{session} " * self.chance.randint(0, 60))

    def compact(self, session: str) -> None:
        head = self.nx.ledger.store.head(self.nx.ledger.thread(session))[0]
        marks = self.nx.ledger.store.checkpoints(self.nx.ledger.thread(session))
        to = self.chance.randint(1, max(head - 1, 1))
        made = Compaction(covers_from=1, covers_to=to, first_kept=to + 1, summary=f"what was said up to {to}")
        self.nx.ledger.compact(session, made, after_checkpoint=marks[0].seq if marks else 0)

    def clear(self, session: str) -> None:
        self.nx.ledger.store.commit(session, Commit((NewEntry("clear"),)))

    def undo(self, session: str) -> None:
        self.nx.ledger.undo(session)

    def redo(self, session: str) -> None:
        self.nx.ledger.redo(session)

    def pin(self, session: str) -> None:
        head = self.nx.ledger.store.head(self.nx.ledger.thread(session))[0]
        self.nx.ledger.pin(session, MessageRef(self.chance.randint(1, max(head, 1)), 0))

    def unpin(self, session: str) -> None:
        pins = self.nx.ledger.live(session).pins
        if pins:
            self.nx.ledger.unpin(session, self.chance.choice(pins))

    def fork(self, session: str) -> None:
        name = f"fork{len(self.sessions)}"
        self.nx.ledger.fork(
            name, session, seq=self.chance.randint(0, self.nx.ledger.store.head(self.nx.ledger.thread(session))[0])
        )
        self.sessions.append(name)

    def rewind(self, session: str) -> None:
        self.kept += 1
        self.nx.ledger.fork(f"kept{self.kept}", session)
        self.sent = [(f"kept{self.kept}" if s == session else s, t, b, c) for s, t, b, c in self.sent]
        self.nx.ledger.rewind(
            session, seq=self.chance.randint(0, self.nx.ledger.store.head(self.nx.ledger.thread(session))[0])
        )

    def rename(self, session: str) -> None:
        new = f"{session}'"
        self.nx.ledger.sessions.rename(session, new)
        self.sessions[self.sessions.index(session)] = new
        self.sent = [(new if s == session else s, t, b, c) for s, t, b, c in self.sent]
        if session in self.open_calls:
            self.open_calls[new] = self.open_calls.pop(session)


def replays(nx: Engine, walk: Walk) -> None:
    """Every recorded call is proven, has its bytes and its account again, and is explained whole."""
    for session, turn, body, ctx in walk.sent:
        calls = range(1, recorded_call(nx.ledger.store, session, turn).count + 1)
        found = [
            n
            for n in calls
            if recorded_call(nx.ledger.store, session, turn, n).row.manifest["id"] == ctx.provenance.manifest.id
        ]
        again = nx.replay(session, turn, call=found[0])
        assert json.dumps(own(again)) == body
        assert again.provenance.manifest == ctx.provenance.manifest
        assert again.accounting.token_breakdown == ctx.accounting.token_breakdown
        assert again.token_budget == ctx.token_budget
        assert again.cut == ctx.cut
        told = nx.explain(session, turn, call=found[0])
        listed_once(nx, session, told, ctx.provenance.manifest.head)
        assert told.used == ctx.token_budget.used.total


def listed_once(nx: Engine, session: str, told: Explanation, head: int, event_seqs: tuple[int, ...] = ()) -> None:
    """Every message of the path has one line, and the tokens add up. A stored event has lines of its own."""
    places = [line.place for line in told.lines if line.place is not None and line.kind == "message"]
    entries = nx.ledger.store.entries(nx.ledger.thread(session), 0, head)
    path = [row.ref for entry in entries if entry.seq not in event_seqs for row in entry.rows]
    assert places == path
    assert sum(line.tokens for line in told.lines) == told.used
    assert all(line.tokens == line.full_tokens for line in told.lines if line.state == "included")
    assert all(line.tokens == 0 for line in told.lines if line.state in ("omitted", "summarized", "not applicable"))
    assert all(line.tokens <= line.full_tokens for line in told.lines)


def opened(workspace: Path | None = None, ledger: Any = ":memory:", **options: Any) -> Engine:
    return nexus.open(workspace, ledger=ledger, clock_ms=lambda: 1_760_000_000_000, **options)


def say(nx: Engine, text: str, answer: str = "ok", **given: Any) -> AssembledContext:
    ctx = nx.assemble(text, **given)
    nx.record(ctx, nexus.AgentResult((assistant(answer),)))
    return ctx


@settings(max_examples=12, deadline=None)
@example(seed=10, steps=10, on_disk=False)  # results after a rewind, whose thread has no entries of its own
@example(seed=105027, steps=10, on_disk=False)  # a fork whose first cut has the number of its parent's
@given(seed=st.integers(0, 1 << 32), steps=st.integers(10, 45), on_disk=st.booleans())
def test_every_recorded_call_is_replayed_and_explained_completely(
    tmp_path_factory: pytest.TempPathFactory, seed: int, steps: int, *, on_disk: bool
) -> None:
    workspace = tmp_path_factory.mktemp("walk")
    (workspace / "AGENTS.md").write_text("Be good.")
    with opened(workspace, str(workspace / "l.db") if on_disk else ":memory:") as nx:
        walk = Walk(nx, workspace, seed)
        for _ in range(steps):
            walk.step()
        replays(nx, walk)


def explained_calls(nx: Engine, session: str) -> list[bool]:
    """Explain each recorded call of a session. Return for each whether its event was stored before it."""
    stored_events: list[bool] = []
    for turn in range(1, nx.ledger.store.thread(nx.ledger.thread(session)).turn + 1):
        with suppress(BadReference):  # a turn without a call
            for number in range(1, recorded_call(nx.ledger.store, session, turn).count + 1):
                manifest = recorded_call(nx.ledger.store, session, turn, number).row.manifest
                told = nx.explain(session, turn, call=number)
                listed_once(nx, session, told, manifest["head"], tuple(manifest.get("event_seqs", ())))
                assert told.used == nx.replay(session, turn, call=number).token_budget.used.total
                stored_events.append("event_seqs" in manifest)
    return stored_events


class CompactingWalk(Walk):
    """Its calls compact the session by themselves: the event is stored before the compaction, and so before the call."""

    def say(self, session: str) -> None:
        """Call a model that answers with words or calls; results may come after the user went on."""
        chance, waiting = self.chance, self.open_calls.get(session)
        event: Any = " ".join(["word"] * chance.randint(1, 300)) + f" {self.calls}"
        if waiting and chance.random() < 0.8:
            event = [tool(call, f"line {call}\n" * chance.choice((1, 20, 200)), "look") for call in waiting]
            del self.open_calls[session]
        self.calls += 1
        call_ids = [f"c{self.calls}_{n}" for n in range(chance.randint(0, 3))]
        parts = [ToolCall(call_id, "look", '{"at": 1}') for call_id in call_ids]
        result = nexus.AgentResult((assistant("answer " * chance.randint(1, 80), *parts),))
        nexus.call(self.nx, event, lambda _: result, session=session, model=MODELS[0], tools=(TOOL,), budget=3_000)
        if call_ids:
            self.open_calls[session] = call_ids


@settings(max_examples=12, deadline=None)
@example(seed=1, steps=45)
@given(seed=st.integers(0, 1 << 32), steps=st.integers(20, 45))
def test_every_call_that_compacted_is_explained_completely(
    tmp_path_factory: pytest.TempPathFactory, seed: int, steps: int
) -> None:
    with opened(tmp_path_factory.mktemp("walk")) as nx:
        walk = CompactingWalk(nx, tmp_path_factory.mktemp("files"), seed)
        for _ in range(steps):
            walk.step()
        for label in (*walk.sessions, *(f"kept{number}" for number in range(1, walk.kept + 1))):
            with suppress(NoSuchSession):
                explained_calls(nx, label)


def test_calls_of_real_session_that_compacts_are_explained_completely(data: Path) -> None:
    with opened(calibrate=False) as nx:
        transcript = next(iter(read(data / "claude_code" / "session_05.jsonl")))
        for point in call_points(transcript):
            if isinstance(point, Mark):
                mark(nx, "main", point)
                continue
            append(nx, "main", *point.appended)
            with suppress(BadEvent, BudgetTooSmall):
                result = nexus.AgentResult(point.reply)
                nexus.call(nx, point.event, lambda _, result=result: result, session="main", budget=12_000)
        stored_events = explained_calls(nx, "main")
    assert len(stored_events) > 10
    assert any(stored_events)


def test_real_session_is_replayed_call_by_call(data: Path, tmp_path: Path) -> None:
    sent: list[tuple[int, str, str]] = []
    with opened(ledger=tmp_path / "ledger.db") as nx:
        transcript = next(iter(read(data / "claude_code" / "session_05.jsonl")))
        for point in call_points(transcript):
            if isinstance(point, Mark):
                mark(nx, "main", point)
                continue
            append(nx, "main", *point.appended)
            try:
                ctx = nx.assemble_request(
                    Request(point.event, settings=Settings(model="claude-sonnet-4-5", budget=12_000))
                )
            except (BadEvent, BudgetTooSmall):
                continue
            done = nx.record(ctx, nexus.AgentResult(point.reply))
            sent.append((done.turn, ctx.provenance.manifest.id, json.dumps(ctx.to_anthropic())))
    with opened(ledger=tmp_path / "ledger.db") as nx:
        for turn, name, body in sent:
            count = recorded_call(nx.ledger.store, "main", turn).count
            calls = [recorded_call(nx.ledger.store, "main", turn, number) for number in range(1, count + 1)]
            (number,) = [call.number for call in calls if call.row.manifest["id"] == name]
            assert json.dumps(nx.replay("main", turn, call=number).to_anthropic()) == body
    assert len(sent) > 10


def test_context_hash_is_the_hash_of_its_body() -> None:
    with opened() as nx:
        for number in range(30):
            ctx = say(nx, f"question {number} " * 20, "answer " * 30, budget=2_500)
            assert ctx.body_hash == hashlib.sha256(msgspec.json.encode(ctx.to_anthropic())).hexdigest()


def test_unchanged_inputs_are_stored_once(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("rule " * 2_000)
    with opened(tmp_path) as nx:
        for number in range(20):
            say(nx, f"question {number}", tools=(TOOL,))
        blobs = [record for record in nx.ledger.store.dump() if isinstance(record, BlobRecord)]
        assert len(blobs) == 3
        (tmp_path / "AGENTS.md").write_text("another rule")
        say(nx, "again", tools=(TOOL,))
        blobs = [record for record in nx.ledger.store.dump() if isinstance(record, BlobRecord)]
        assert len(blobs) == 4
        nx.replay("main", 3)


def test_call_is_found_by_turn_or_is_the_last() -> None:
    with opened() as nx:
        first = nx.assemble("go", tools=(TOOL,))
        nx.record(first, nexus.AgentResult((assistant("", ToolCall("a", "look", "{}")),)))
        second = nx.assemble([tool("a", "seen")], tools=(TOOL,))
        nx.record(second, nexus.AgentResult((assistant("done"),)))
        assert nx.replay("main", 1, call=1).to_anthropic() == first.to_anthropic()
        assert nx.replay("main", 1).to_anthropic() == second.to_anthropic()
        for turn, call in ((2, None), (0, None), (-1, None), (1, 3), (1, 0)):
            with pytest.raises(BadReference):
                nx.replay("main", turn, call=call)
        with pytest.raises(NoSuchSession):
            nx.replay("another", 1)


def test_imported_turn_cannot_be_replayed() -> None:
    with opened() as nx:
        append(nx, "main", user("hi"), assistant("hello"), starts_turn=True)
        with pytest.raises(BadReference, match="no recorded call"):
            nx.replay("main", 1)


def test_replay_without_inputs_fails_unless_unverified() -> None:
    damaged = SqliteLedger()
    with opened() as nx:
        ctx = say(nx, "hi", tools=(TOOL,))
        name = nx.ledger.store.assemblies(1)[0].manifest["inputs"]["tools"]
        damaged.load(record for record in nx.ledger.store.dump() if getattr(record, "sha256", "") != name)
    with opened(ledger=damaged) as nx:
        assert [damage.record for damage in check(nx.ledger.store.dump())] == ["assembly"]
        with pytest.raises(CannotReplay, match=r"tools .* not in the ledger"):
            nx.replay("main", 1)
        shown = nx.replay("main", 1, unverified=True)
        assert shown.tools == ()
        assert shown.to_anthropic()["messages"] == ctx.to_anthropic()["messages"]
        assert any("not verified" in warned.message for warned in shown.warnings)


def test_replay_of_earlier_ledger_version_needs_unverified() -> None:
    ledger = SqliteLedger()
    with opened(ledger=ledger) as nx:
        ctx = nx.assemble("hi", budget=3_000)
        made = build_commit(ctx, nexus.AgentResult((assistant("yes"),)), nx.counter, 5)
        assert made.assembly is not None
        new = (
            "body",
            "inputs",
            "session",
            "events",
            "opens",
            "notes",
            "made",
            "uncut",
            "context_json",
            "largest",
            "task",
        )
        old = {name: value for name, value in made.assembly.manifest.items() if name not in new}
        assert len(old) == len(made.assembly.manifest) - len(new)
        earlier = msgspec.structs.replace(made.assembly, manifest=old)
        nx.ledger.store.commit("main", msgspec.structs.replace(made, assembly=earlier, blobs=()))
        with pytest.raises(CannotReplay, match="inputs not stored"):
            nx.replay("main", 1)
        shown = nx.replay("main", 1, unverified=True)
        assert shown.to_anthropic()["messages"] == ctx.to_anthropic()["messages"]


def test_replay_rejects_body_with_other_hash() -> None:
    with opened() as nx:
        ctx = nx.assemble("hi")
        made = build_commit(ctx, nexus.AgentResult((assistant("yes"),)), nx.counter, 5)
        assert made.assembly is not None
        forged = msgspec.structs.replace(made.assembly, manifest={**made.assembly.manifest, "body": "0" * 64})
        nx.ledger.store.commit("main", msgspec.structs.replace(made, assembly=forged))
        with pytest.raises(CannotReplay, match="body hash differs"):
            nx.replay("main", 1)


@pytest.mark.parametrize("strange", [{"response_format": dict}, {"seed": math.nan}, {"a": "\ud800"}])
def test_settings_without_json_form_cannot_be_replayed(strange: dict[str, Any]) -> None:
    with opened() as nx:
        say(nx, "hi", model_config=strange)
        with pytest.raises(CannotReplay):
            nx.replay("main", 1)


def test_replay_with_other_counter_names_the_reason(tmp_path: Path) -> None:
    with opened(ledger=tmp_path / "ledger.db") as nx:
        say(nx, "hi")
    with opened(ledger=tmp_path / "ledger.db", counter=get_counter("estimate")) as nx:
        with pytest.raises(CannotReplay, match="counted by"):
            nx.replay("main", 1)
        assert nx.replay("main", 1, unverified=True).to_anthropic()["messages"]


def test_delete_session_removes_inputs_of_its_calls_only(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("the rule")
    with opened(tmp_path) as nx:
        say(nx, "hi", session="one")
        (tmp_path / "AGENTS.md").write_text("another rule")
        say(nx, "hi", session="two")
        assert nx.ledger.upkeep.erase("one").blobs == 1
        assert nx.replay("two", 1).system_prompt
        assert not [r for r in nx.ledger.store.dump() if isinstance(r, BlobRecord) and b"the rule" in r.data]


def test_what_if_changes_budget_model_and_message() -> None:
    with opened() as nx:
        for number in range(12):
            say(nx, f"question {number} " * 20, "answer " * 40)
        before = [*nx.ledger.store.dump()]
        small = nx.what_if("main", 9, ReplayOverrides(budget=800))
        assert small.token_budget.available == 800
        assert small.cut is not None
        other = nx.what_if("main", 9, ReplayOverrides(model="gpt-4o", event=Event((Text("something else"),))))
        assert (other.model, other.current_message.text()) == ("gpt-4o", "something else")
        same = nx.what_if("main", 9, ReplayOverrides())
        assert same.to_anthropic() == nx.replay("main", 9).to_anthropic()
        assert [*nx.ledger.store.dump()] == before


def test_explain_next_call_reports_truncated_event() -> None:
    with opened() as nx:
        for number in range(12):
            say(nx, f"question {number} " * 20, "answer " * 40)
        told = nx.explain("main")
        listed_once(nx, "main", told, nx.ledger.store.head(1)[0])
        assert told.call == "the next call"
        request = Request(Event((Text("hi"),)), settings=Settings(budget=900, model="gpt-4o"))
        told = nx.calls.explain_next(request)
        listed_once(nx, "main", told, nx.ledger.store.head(1)[0])
        assert told.tokens("omitted") > 500
        with pytest.raises(NoSuchSession):
            nx.explain("nobody")


def test_diff_reports_cause_position_and_price(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("rule " * 1_500)
    (tmp_path / "SOUL.md").write_text("Calm.")
    with opened(tmp_path) as nx:
        say(nx, "one " * 400)
        say(nx, "two")
        (tmp_path / "SOUL.md").write_text("Calm and exact.")
        changed = say(nx, "three")
        extends = nx.diff("main", 2)
        assert (extends.state, extends.causes, extends.lost_tokens) == ("extends", (), 0)
        found = nx.diff("main", 3)
        assert (found.state, found.causes) == ("broken", ("SOUL.md (soul) changed",))
        assert found.at == "SOUL.md (soul) in the system slot"
        assert found.earlier_excerpt.startswith(".")
        assert found.later_excerpt.startswith(" and exact.")
        assert found.stable_tokens + found.reprocessed_tokens == changed.token_budget.used.total
        assert (found.stable_tokens, found.lost_tokens) == (
            changed.accounting.prefix.stable_tokens,
            changed.accounting.prefix.lost_tokens,
        )
        assert found.price == changed.accounting.prefix.price
        assert found.price is not None
        assert 0 < found.price < 0.01
        assert nx.diff("main", 1, 3).state == "broken"
        assert nx.diff("main", 3, 3).state == "same"
        with pytest.raises(BadReference, match="no previous call"):
            nx.diff("main", 1)


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 1 << 32))
@example(seed=524_288)  # a prompt that is smaller than the framing of its model, by the reported usage
def test_stable_part_of_broken_prefix_is_equal_in_both_prompts(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    workspace = tmp_path_factory.mktemp("walk")
    with opened(workspace) as nx:
        walk = Walk(nx, workspace, seed)
        walk.kinds = walk.kinds[:7]  # one path, so that the earlier call is at hand
        last: dict[str, AssembledContext] = {}
        for _ in range(40):
            walk.step()
            ctx = walk.sent[-1][3] if walk.sent else None
            before = last.get(ctx.provenance.manifest.view) if ctx else None
            if ctx is None or before is ctx:
                continue
            last[ctx.provenance.manifest.view] = ctx
            if before is None or ctx.accounting.prefix.state != "broken":
                continue
            assert ctx.accounting.prefix.at
            assert 0 <= ctx.accounting.prefix.stable_tokens <= ctx.token_budget.used.total
            if found := re.fullmatch(r"message (\d+) of the history", ctx.accounting.prefix.at):
                shared = int(found[1]) - 1
                # What a cut keeps may go on with messages that came after the earlier call.
                assert ctx.messages[:shared][: len(before.messages)] == before.messages[:shared]
                assert (ctx.system_prompt, ctx.tools) == (before.system_prompt, before.tools)
