"""A session that goes through a script: each step is taken, and whatever it shows is judged by every law."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

import nexus
from laws import checks
from laws.call import Call, bodies, broken, text
from laws.figures import tell
from laws.oracle import Path, size_class
from laws.scripts import LINES, MODELS, PICTURE, Script, Step, calls_of, orphan, replied, results_of, said, tools_of
from laws.summarizers import Scripted, Watched
from nexus.assembly.record import with_sizes
from nexus.engine import Engine
from nexus.errors import BadEvent, BadReference, BudgetTooSmall
from nexus.ledger.sqlite import SqliteLedger
from nexus.types.compaction_plan import CompactionPlan
from nexus.types.config import Config, ImagesConfig
from nexus.types.ledger_entries import Commit, Compaction, NewEntry
from nexus.types.message import Message, Text, tool
from nexus.types.request import AgentResult, Event

NOW_MS = 1_760_000_000_000


class Session:
    """One engine over one ledger in memory. `figures` counts what was met."""

    def __init__(self, script: Script, figures: Counter[str]) -> None:
        self.script, self.figures = script, figures
        self.store = SqliteLedger(clock_ms=lambda: NOW_MS)
        self.model, self.label = script.model, "s"
        self.summarizer = Scripted()
        self.nx = self.opened()
        self.ladder = Watched(self.nx.counter, self.summarizer)
        self.nx.compactor.summarizer = self.ladder
        self.tools = tools_of(script.tools)
        self.sent: dict[str, dict[str, str]] = {}
        self.states: dict[str, tuple[Any, ...]] = {}
        self.foreign: set[int] = set()
        self.number = 0
        self.met: Counter[str] = Counter()

    def opened(self) -> Engine:
        """Another engine on the same ledger."""
        options: dict[str, Any] = {"strategy": self.script.strategy, "max_tool_result_tokens": self.script.largest}
        options["config"] = Config(images=ImagesConfig(keep_turns=self.script.image_turns))
        return Engine(None, self.store, model=self.model, clock_ms=lambda: NOW_MS, **options)

    def through(self) -> None:
        """All steps, then one more look at what came of them."""
        for step in self.script.steps:
            self.number += 1
            getattr(self, step.kind)(step)
        self.number += 1
        self.look(Step("look", 1, 2))
        tell(self.met, self.script, self.nx.resolve(self.script.model).provider_format, self.figures)

    # steps -------------------------------------------------------------------------------------------------------

    def ask(self, step: Step) -> None:
        """A user speaks, and is answered: with words alone, with a call, or with calls in parallel."""
        label = f"u{self.number}"
        event = Event(content=self.script.spoken(label, step.a, step.b))
        self.called(event, replied(str(self.number), step.b, step.a, (0, 0, 1, 1, 2, 3)[step.a % 6]), step)
        if self.script.image_turns and step.b % 4 == 3:
            self.pin(step)

    def answer(self, step: Step) -> None:
        """The calls that wait get their results, and the assistant goes on."""
        waiting = self.path().waiting() if self.there() else []
        if not waiting and step.a % 8:
            self.ask(step)
            return
        results = results_of(waiting, f"{self.number}", step.a, step.b) if waiting else (orphan(step.b),)
        content = (Text(f"u{self.number} and besides"),) if step.b % 11 == 0 else ()
        many = (0, 1, 1, 2, 3)[step.b % 5]
        self.called(Event(content=content, results=results), replied(str(self.number), step.b, step.a, many), step)

    def look(self, step: Step) -> None:
        """A context that is not recorded."""
        self.called(Event(content=self.script.spoken(f"u{self.number}", step.a, step.b)), None, step)

    def raw(self, step: Step) -> None:
        """Whatever messages, straight into the ledger."""
        self.append(*step.messages, starts_turn=step.a % 2 == 0)
        self.met["hostile entries"] += 1

    def talk(self, step: Step) -> None:
        """Some exchanges, straight into the ledger."""
        for at in range(1 + step.a % 3):
            label = f"t{self.number}.{at}"
            words = Message("user", self.script.spoken(label, step.a + at, step.b + at))
            self.append(words, replied(label, step.b + at, step.a + at, 0), starts_turn=True)

    def work(self, step: Step) -> None:
        """A long turn of few words, straight into the ledger: results of tools take most of it."""
        label = f"w{self.number}"
        self.append(Message("user", (Text(said(label, step.a, 0)),)), starts_turn=True)
        for at in range(3 + step.a % 8):
            calls = calls_of(f"{label}.{at}", 0, 1 + step.b % 2)
            texts = [f"{label}.{at}.{n}\n" + LINES * (16 + (step.b + at * 5) % 12) for n in range(len(calls))]
            results = [tool(call.id, whole, call.name) for call, whole in zip(calls, texts, strict=True)]
            self.append(Message("assistant", calls), *results)

    def loop(self, step: Step) -> None:
        """A turn with calls, straight into the ledger: each entry has the results of the calls before it."""
        label = f"l{self.number}"
        many = (1, 1, 2, 3)[step.b % 4]
        self.append(Message("user", (Text(said(label, step.a, step.b // 4)),)), starts_turn=True)
        reply = replied(f"{label}.0", step.a, step.b, many)
        self.append(reply)
        for at in range(1 + step.a % 5):
            results = results_of(list(reply.calls()), f"{label}.{at}", step.a, step.b + at)
            reply = replied(f"{label}.{at + 1}", step.a + at, step.b, many if at % 3 else 1)
            self.append(*results, *((reply,) if step.b % 3 else ()))
            if not step.b % 3:
                self.append(reply)

    def compact(self, step: Step) -> None:
        """Older messages are summarised: mostly by a quick hand, else by rule or by a summariser of any mood."""
        if not self.there():
            return
        self.ladder.quick = step.b % 16 > 0
        self.ladder.model = self.summarizer if step.a % 4 < 3 else None
        self.summarizer.mood = step.a // 4
        self.carried(None, share=(0.2, 0.4, 0.6, 0.1)[step.a % 4], budget=self.budget(step))

    def plan(self, step: Step) -> None:
        """A context's own plan is carried out, perhaps after something was said meanwhile."""
        try:
            ctx = self.assembled(Event(content=(Text(f"u{self.number}"),)), self.budget(step))
        except BudgetTooSmall:
            return
        plan = ctx.plan("context_limit" if step.a % 2 else "overflow_recovery", 0.4)
        if plan is None:
            return
        if step.a % 3 == 0:
            self.append(Message("user", (Text(f"meanwhile {self.number}"),)))
        self.ladder.quick = True
        self.carried(plan)

    def carried(self, plan: CompactionPlan | None, **request: Any) -> None:
        """Carries a compaction out and judges what was covered."""
        before = self.path()
        self.ladder.asked = ([], "")
        told: dict[str, Any] = {"plan": plan} if plan is not None else {"profile": "bare", **request}
        done = self.nx.compact(self.label, **told)
        if not done:
            self.met["compactions that were not worth it"] += 1
            return
        after = self.path()
        self.met["compactions"] += 1
        rows, previous = self.ladder.asked
        mark = before.live
        wanted = str(mark.body.get("summary", "")) if mark is not None and mark.kind == "compaction" else ""
        if previous != wanted:
            broken("previous summary", f"{previous!r} was given to the summariser, not {wanted!r}")
        if after.begin <= before.begin:
            broken("covers", f"kept from {after.begin} on, as before")
        covered = [row.ref for row in after.talk(before.begin, after.begin)]
        if [row.ref for row in rows] != covered:
            missing = sorted(set(covered) ^ {row.ref for row in rows})
            broken("covers", f"the summary was not made of what it covers: {missing}")
        checks.covered_without_gap(after)
        checks.waiting_kept(after, after.waiting())

    def undo(self, step: Step) -> None:
        """The newest compaction is taken back; where there is none, one is made first."""
        mark = self.path().live if self.there() else None
        if mark is None or mark.kind != "compaction":
            self.compact(step)
        self._try("undos", "undo")

    def redo(self, _step: Step) -> None:
        """The newest undo is taken back."""
        self._try("redos", "redo")

    def _try(self, name: str, what: str) -> None:
        if self.there():
            try:
                getattr(self.nx.ledger, what)(self.label)
                self.met[name] += 1
            except BadReference:
                self.met["nothing to undo or redo"] += 1

    def pin(self, step: Step) -> None:
        """A message is pinned."""
        rows = [row for row in self.path().rows if row.size.tokens < self.script.room // 3] if self.there() else []
        if self.script.image_turns:
            rows = [row for row in rows if PICTURE in row.message.parts] or rows
        if rows:
            self.nx.ledger.pin(self.label, rows[(step.a * 256 + step.b) % len(rows)].ref)
            self.met["pins"] += 1

    def unpin(self, step: Step) -> None:
        """A pin is taken back."""
        pins = self.nx.ledger.live(self.label).pins if self.there() else ()
        if pins:
            self.nx.ledger.unpin(self.label, pins[step.a % len(pins)])
            self.met["unpins"] += 1

    def fork(self, step: Step) -> None:
        """The session goes on in a fork, from any entry."""
        if self.there():
            label = f"f{self.number}"
            self.nx.ledger.fork(label, self.label, seq=self._far(step))
            self.label = label
            self.met["forks"] += 1

    def rewind(self, step: Step) -> None:
        """The session goes back to any entry."""
        if self.there():
            self.nx.ledger.rewind(self.label, seq=self._far(step))
            self.met["rewinds"] += 1

    def _far(self, step: Step) -> int:
        head = len(self.path().entries)
        return head - (step.a * step.b) % (head // 2 + 1)

    def clear(self, step: Step) -> None:
        """All that was said is cleared; seldom, as little is left to judge then."""
        if self.there() and step.a % 3 == 0:
            self.store.commit(self.label, Commit((NewEntry("clear"),)))
            self.met["clears"] += 1

    def mark(self, step: Step) -> None:
        """A compaction that some other program made: it covers everything up to an entry."""
        if self.there() and step.a % 2 == 0:
            path = self.path()
            head = len(path.entries)
            kept = min(max(head + 1 - step.b % 4, path.begin.seq, 1), head + 1)
            body = msgspec.to_builtins(Compaction(path.begin.seq, kept - 1, kept, f"a summary by {self.number}"))
            if path.begin.seq <= kept:
                self.store.commit(self.label, Commit((NewEntry("compaction", body=body),)))
                self.foreign.add(head + 1)
                self.met["compactions by others"] += 1

    def switch(self, step: Step) -> None:
        """The next calls go to another model."""
        self.model = MODELS[step.a % 3]
        self.met["switches of model"] += 1

    # calls -------------------------------------------------------------------------------------------------------

    def called(self, event: Event, reply: Message | None, step: Step) -> None:
        """Assembles, judges, records. What is refused goes into the ledger all the same, and the session goes on."""
        budget = self.budget(step)
        stored = event.results
        if event.content:
            stored = (*stored, Message("user", event.content, at_ms=NOW_MS, source=event.source))
        try:
            ctx = self.assembled(event, budget)
        except BudgetTooSmall as error:
            checks.refused(error, budget)
            self.met["refusals"] += 1
            if reply is not None:
                self.append(*stored, reply, starts_turn=not event.results)
            return
        except BadEvent:
            self._empty(event)
            return
        self.judged(ctx, event, budget, step)
        if reply is not None:
            if sum(1 for _ in reply.calls()) > 1:
                self.met["parallel calls"] += 1
            done = self.nx.record(ctx, AgentResult((reply,)))
            if done.added:
                self.met["calls recorded"] += 1

    def _empty(self, event: Event) -> None:
        """An event is empty only if it has neither words nor a picture, nor a result that a call waits for."""
        waits = {call.id for call in self.path().open_calls()} if self.there() else set[str]()
        answers = any(result.call_id in waits for message in event.results for result in message.results())
        says = any(not isinstance(part, Text) or part.text.strip() for part in event.content)
        if answers or says:
            broken("empty event", f"{event} is not empty; {waits=}")
        self.met["empty events"] += 1

    def assembled(self, event: Event, budget: int, nx: Engine | None = None) -> nexus.AssembledContext:
        """The context of an event."""
        return (nx or self.nx).assemble(
            event, session=self.label, model=self.model, tools=self.tools, budget=budget, profile="bare"
        )

    def judged(self, ctx: nexus.AssembledContext, event: Event, budget: int, step: Step) -> None:
        """Holds the context against every law."""
        path = self.path() if self.there() else Path([])
        stored = ctx.event
        cut = ctx.cut
        thread = self.store.thread_of(self.label)
        if cut is None and ctx.provenance.manifest.cut and thread is not None:
            cut = self.store.last_cut(thread, ctx.provenance.manifest.view)
        largest = self.script.largest
        call = Call(
            ctx,
            path,
            cut,
            budget,
            size_class(budget) // 4 if largest is None else largest,
            stored,
            foreign=any(entry.seq in self.foreign for entry in path.entries if entry.kind == "compaction"),
            image_turns=self.script.image_turns,
            whole_new=largest is None and self.script.strategy in ("keep_user_turns", "digest"),
            keeps_user_turns=self.script.strategy in ("keep_user_turns", "digest"),
        )
        self.met["bodies validated"] += checks.valid(call)
        self.met["contexts judged"] += 1
        checks.within_budget(call)
        checks.nothing_vanishes(call)
        checks.sent_messages_are_named(call)
        checks.images_of_newest_turns(call)
        checks.event_whole(call)
        checks.summary_and_marker(call)
        checks.counted(call)
        checks.pins_whole(call)
        checks.excerpts_shown(call)
        # No client writes the entries of `raw`, and the turn of a pin that was removed is counted from the next cut on.
        if not {step.kind for step in self.script.steps} & {"raw", "pin", "unpin"}:
            checks.user_turns_accounted(call)
        self.met["contexts with excerpts"] += bool(call.excerpts)
        checks.task_present(call)
        checks.request_present(call)
        checks.full_pass(call)
        self._cut_numbers(ctx, thread)
        self._prefix(call, thread)
        if step.b % 3 == 0:
            self._again(call, event, budget, None, "same bytes")
        elif step.b % 3 == 1:
            self._again(call, event, budget, self.opened(), "kept window")
        if ctx.cut is not None:
            kind = "leave messages out" if ctx.cut.omission_notice else "shorten results only"
            self.met["cuts"] += 1
            self.met[f"cuts that {'make notes' if ctx.cut.reason == 'old images' else kind}"] += 1
        self.met["contexts with old images as notes"] += cut is not None and cut.images_until_seq > 0
        if call.shortened:
            self.met["contexts with shortened results"] += 1

    def _cut_numbers(self, ctx: nexus.AssembledContext, thread: int | None) -> None:
        last = self.store.last_cut(thread, ctx.provenance.manifest.view) if thread is not None else None
        if ctx.cut is not None and ctx.cut.number != (last.number if last else 0) + 1:
            broken("cut numbers", f"{ctx.cut.number} after {last.number if last else 0}")
        if ctx.cut is not None and ctx.cut.reason == "over budget" and ctx.accounting.full_share <= 1:
            broken("cut numbers", f"a cut at {ctx.accounting.full_share:.0%} of the room")

    def _prefix(self, call: Call, thread: int | None) -> None:
        """Compares with what was sent last in this view on this path."""
        ctx = call.ctx
        last = self.store.last_assembly(thread, ctx.provenance.manifest.view) if thread is not None else None
        before = self.sent.get(last.manifest["id"]) if last is not None else None
        possible: set[str] = set()
        if last is not None:
            told, now = last.manifest, ctx.provenance.manifest
            newest = path_marks(call.path, last.seq)
            possible |= {"cut to stay", "were shortened", "became notes"} if told["cut"] != now.cut else set()
            possible |= {"compacted or cleared"} if newest & {"compaction", "clear", "undone"} else set()
            possible |= {"pinned messages"} if newest & {"pin", "unpin"} else set()
            possible |= {"pinned messages"} if has_late_results(call.path, told["head"]) else set()
            possible |= {"other turns were recorded"} if told["head"] + 1 != last.seq else set()
            possible |= {"no answer"} if not told.get("answered", True) else set()
            possible |= {"the model"} if told["model"] != now.model else set()
            possible |= {"nexus:session"}
        checks.extends(call, before, possible)
        if ctx.accounting.prefix.state == "extends":
            self.met["prefixes kept"] += 1
        self.sent[ctx.provenance.manifest.id] = call.sent

    def _again(self, call: Call, event: Event, budget: int, nx: Engine | None, law: str) -> None:
        """The same request once more, by the same engine or by one that has read nothing yet."""
        try:
            again = self.assembled(event, budget, nx)
        except BudgetTooSmall as error:
            broken(law, f"refused the second time: {error}")
        for wire, body in bodies(again).items():
            if text(body) != call.sent[wire]:
                broken(law, f"other bytes in the {wire} form:\n{text(body)}\n{call.sent[wire]}")
        if again.accounting.token_breakdown != call.ctx.accounting.token_breakdown or again.cut != call.ctx.cut:
            broken(
                law,
                f"{again.accounting.token_breakdown} {again.cut}, not {call.ctx.accounting.token_breakdown} {call.ctx.cut}",
            )
        if nx is not None:
            self.met["windows made anew and compared"] += 1

    # the ledger --------------------------------------------------------------------------------------------------

    def budget(self, step: Step) -> int:
        """The script's budget; now and then a smaller or larger one, within the size class or beyond it."""
        base = self.script.room
        return {11: base * 2, 12: base - base // 16, 13: base // 2}.get(step.b % 32, base)

    def append(self, *messages: Message, starts_turn: bool = False) -> None:
        """An entry straight into the ledger."""
        rows = with_sizes(messages, self.nx.counter)
        self.store.commit(self.label, Commit((NewEntry(messages=rows, starts_turn=starts_turn),)))
        if any(sum(1 for _ in message.calls()) > 1 for message in messages):
            self.met["parallel calls"] += 1

    def there(self) -> bool:
        """Whether the session has anything yet."""
        thread = self.store.thread_of(self.label)
        return thread is not None and self.store.head(thread)[0] > 0

    def path(self) -> Path:
        """The session's entries, read anew."""
        return Path(self.nx.ledger.entries(self.label))


def path_marks(path: Path, after: int) -> set[str]:
    """The kinds of marks that came after an entry."""
    return {entry.kind for entry in path.entries[after:]}


def has_late_results(path: Path, head: int) -> bool:
    """Return whether a call up to an entry got its result later: a pinned one is then shown with it."""
    until = [row.message for entry in path.entries[:head] for row in entry.rows]
    later = [row.message for entry in path.entries[head:] for row in entry.rows]
    waiting = {call.id for message in until for call in message.calls()}
    waiting -= {result.call_id for message in until for result in message.results()}
    return any(result.call_id in waiting for message in later for result in message.results())


def run(script: Script, figures: Counter[str]) -> None:
    """One session through its script. Raises Broken where a law does not hold."""
    Session(script, figures).through()
