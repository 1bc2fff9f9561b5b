"""Faults put into the code on purpose, to prove that the laws find what they look for: each changes a line of one function.

A mutant is the function's own source with one piece replaced, compiled in its module and put wherever the function is
used; leaving the block puts everything back.
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from msgspec import Struct

from laws.frame_laws import Case
from laws.scripts import Script, Step
from nexus.types.message import Message, Text, ToolCall, ToolResult


class Fault(Struct, frozen=True):
    """What is broken: a function (`module:name` or `module:Class.name`), a piece of its source, and what stands there instead."""

    name: str
    where: str
    old: str
    new: str


class Mutant(Fault, frozen=True):
    """A fault with the names of the laws that find it, and what they find it with."""

    laws: tuple[str, ...]
    example: Script | Case | tuple[Any, ...]


ASK = Step("ask")

CALL = Message("assistant", (ToolCall("call 1", "read_file", "{}"),))
OTHER_RESULT = Message("tool", (ToolResult("call_1", (Text("found"),), "read_file"),))

MUTANTS = (
    Mutant(
        "calls are not closed when somebody else speaks",
        "nexus.assembly.fit.repair:close", "fold.waiting, fold.answered, fold.pending, fold.system_queue, fold.last_assistant = {}, set(), [], [], None",
        "fold.pending, fold.system_queue, fold.last_assistant = [], [], None", ("valid",),
        Script("gpt-4o", 300, "oldest_first", None, 0, (*[ASK] * 5, Step("ask", 182))),
    ),
    Mutant(
        "repair closes a call twice",
        "nexus.assembly.fit.repair:preview", "return [*visible, *closing_messages(after)], after.changes",
        "return [*visible, *closing_messages(after), *closing_messages(after)], after.changes", ("valid",),
        Script("gpt-4o", 300, "oldest_first", None, 0, (*[ASK] * 4, Step("ask", 94), Step("answer", 6, 1))),
    ),
    Mutant(
        "a result is taken for a second one by an id as shown",
        "nexus.assembly.fit.repair:_add_displaced", "fold.render >= STORED_IDS_RENDER", "False", ("nothing vanishes",),
        Script("gpt-4o", 300, "oldest_first", None, 0, (*[ASK] * 5, Step("raw", messages=(CALL, OTHER_RESULT)))),
    ),
    Mutant(
        "a user's pin is dropped",
        "nexus.assembly.fit.window:Window.hidden_pins", "shows.get(pin.kind, True)", 'shows.get(pin.kind, pin.kind != "pin")',
        ("pins word for word",),
        Script("gpt-4o", 300, "oldest_first", None, 0, (*[ASK] * 11, Step("ask", 0, 43)), 1),
    ),
    Mutant(
        "a pinned result is shortened",
        "nexus.assembly.fit.window:Window._truncated", "row.ref in self.rules.verbatim", "False", ("pins word for word",),
        Script("gpt-4o", 450, "oldest_first", None, 0, (Step("loop", 1), Step("pin", 0, 1), *[ASK] * 4)),
    ),
    Mutant(
        "a model with other tools is told a command",
        "nexus.assembly.fit.window:Window._truncated", "lookup=lookup", 'lookup="command"', ("results",),
        Script("gpt-4o", 600, "oldest_first", None, 2, (*[ASK] * 5, Step("work"))),
    ),
    Mutant(
        "a result is shortened again from the shortened text",
        "nexus.assembly.fit.window:Window._truncated", "row.message, limit, counter,",
        "truncate_results(row.message, limit * 2, counter, keeps_images=True), limit, counter,", ("results",),
        Script("gpt-4o", 600, "oldest_first", None, 0, (*[ASK] * 5, Step("work"))),
    ),
    Mutant(
        "the limit of results is taken by the wrong entry",
        "nexus.assembly.fit.truncate_results:TruncationLimits.limit", "seq <= self.until", "seq < self.until", ("results",),
        Script("gpt-4o", 600, "oldest_first", None, 0, (*[ASK] * 5, Step("work"), Step("loop", 1, 3)), 1),
    ),
    Mutant(
        "what a compaction kept is lost",
        "nexus.ledger.replay:visible_start", 'MessageRef(int(mark.body["first_kept"]), int(mark.body.get("kept_ord", 0)))',
        "MessageRef(mark.seq + 1, 0)", ("nothing vanishes", "empty event"),
        Script("gpt-4o", 300, "oldest_first", None, 0, (*[ASK] * 5, Step("compact"))),
    ),
    Mutant(
        "the marker is written anew whenever a window is made",
        "nexus.assembly.fit.window:Window.open", "notice(cut.omission_notice,",
        "notice(cut.omission_notice.replace('Earlier', f'{len(pins)} earlier'),", ("marker",),
        Script("gpt-4o", 300, "oldest_first", None, 0, (*[ASK] * 6,)),
    ),
    Mutant(
        "the budget is checked without the tools",
        "nexus.assembly.fit.result:total_tokens", "fixed.total", "fixed.system", ("within budget",),
        Script("gpt-4o", 300, "oldest_first", None, 1, (*[ASK] * 6,)),
    ),
    Mutant(
        "the first task is dropped without a word",
        "nexus.assembly.fit.view:_pins", "first.ref, (first,), TASK_RESULTS", "first.ref, (), TASK_RESULTS",
        ("first task", "marker counts"),
        Script("gpt-4o", 300, "oldest_first", None, 0, (*[ASK] * 6,)),
    ),
    Mutant(
        "the request is lost when a window is made anew from the ledger",
        "nexus.assembly.fit.pins:pending_request_ref", "return cut.pending_request_ref", "return None", ("request", "kept window"),
        Script("gpt-4o", 300, "oldest_first", None, 0, (*[ASK] * 6, Step("ask", 0, 1))),
    ),
    Mutant(
        "a summary leaves a gap of one entry",
        "nexus.assembly.fit.compaction_plan:_draft", "covers_from=start.seq,", "covers_from=start.seq + 1,", ("covers",),
        Script("gpt-4o", 300, "oldest_first", None, 0, (*[ASK] * 5, Step("compact"))),
    ),
    Mutant(
        "a call that waits is covered by a summary",
        "nexus.assembly.fit.compaction_plan:plan_compaction", "_place(window, index)", "MessageRef(window.head + 1, 0)", ("waiting calls",),
        Script("gpt-4o", 300, "oldest_first", None, 0, (*[ASK] * 4, Step("loop"), Step("compact"))),
    ),
    Mutant(
        "the summary so far is not handed on",
        "nexus.assembly.fit.compaction_plan:plan_compaction", 'previous=str(mark.body.get("summary", "")) if', 'previous="" if',
        ("previous summary",),
        Script("gpt-4o", 2600, "oldest_first", None, 0, (*[ASK] * 4, Step("compact"), Step("compact"))),
    ),
    Mutant(
        "a cut has the number of the one before",
        "nexus.assembly.fit.cut_history:_Cutter._cut", "context.number,", "max(context.number - 1, 1),", ("cut numbers",),
        Script("claude-sonnet-4-5", 150, "oldest_first", None, 0, (*[ASK] * 12,)),
    ),
    Mutant(
        "a cut counts one message too few",
        "nexus.assembly.fit.cut_history:_Cutter._cut", "passed = begin", "passed = max(begin - 1, 0)", ("marker counts",),
        Script("gpt-4o", 300, "oldest_first", None, 0, (*[ASK] * 6,)),
    ),
    Mutant(
        "what was cleared comes back",
        "nexus.assembly.fit.view:_pins", "reading.live.cleared_at", "0", ("first task", "marker counts"),
        Script("gpt-4o", 300, "oldest_first", None, 0, (ASK, Step("clear"), *[ASK] * 5)),
    ),
    Mutant(
        "a kept window is extended across an undo",
        "nexus.assembly.fit.window:Window.extend", "in _CHECKPOINTS", 'in _CHECKPOINTS - {"undone"}', ("nothing vanishes", "summary"),
        Script("gpt-4o", 300, "oldest_first", None, 0, (*[ASK] * 3, Step("compact"), ASK, Step("undo"))),
    ),
    Mutant(
        "an image of a pinned message becomes a note",
        "nexus.assembly.fit.window:Window._with_image_notes", "row.ref in self.rules.keeps_images", "False",
        ("nothing vanishes", "results", "pins word for word"),
        Script("gpt-4o", 800, "oldest_first", None, 0, (*[ASK] * 6,), 1),
    ),
    Mutant(
        "the note's place is taken by the wrong entry",
        "nexus.assembly.fit.window:Window._with_image_notes", "row.ref.seq > self.rules.limits.images",
        "row.ref.seq >= self.rules.limits.images", ("nothing vanishes", "results"),
        Script("gpt-4o", 300, "oldest_first", None, 0, (*[ASK] * 5, Step("talk", 74)), 1),
    ),
    Mutant(
        "images of the newest turns become notes",
        "nexus.assembly.fit.token_sums:image_notes_until", "index = window.indexes.turns[-turns]", "index = window.indexes.turns[-1]", ("old images",),
        Script("gpt-4o", 600, "oldest_first", None, 0, (*[ASK] * 6,), 2),
    ),
    Mutant(
        "an image that became a note comes back when a window is made anew",
        "nexus.assembly.fit.window:Window.open", "images=cut.images_until_seq if cut is not None else 0", "images=0",
        ("nothing vanishes", "results"),
        Script("gpt-4o", 600, "oldest_first", None, 0, (*[ASK] * 4, Step("talk", 74), ASK), 1),
    ),
    Mutant(
        "an excerpt is not counted among what stays",
        "nexus.assembly.fit.cut_history:_Cutter._cut", "[*note.pins, *digest_pins", "[*digest_pins",
        ("marker counts",),
        Script("gpt-4o", 1_600, "keep_user_turns", None, 0, (*[ASK] * 8, Step("work"), ASK)),
    ),
    Mutant(
        "the request of a divided turn is no excerpt at the next cut",
        "nexus.assembly.fit.excerpts:_candidates", '("excerpt", "asked", "task", "withheld")', '("excerpt", "task", "withheld")', ("user turns",),
        Script("gpt-4o", 300, "keep_user_turns", None, 0,
            (Step("talk", 74), Step("work"), Step("ask", 167, 95), ASK, Step("ask", 164, 170), Step("work"))),
    ),
    Mutant(
        "turns that an earlier cut had no room for are forgotten",
        "nexus.assembly.fit.excerpts:_candidates", '("excerpt", "asked", "task", "withheld")', '("excerpt", "asked", "task")',
        ("user turns",),
        Script("gpt-4o", 450, "keep_user_turns", None, 0,
            (Step("talk", 74), ASK, Step("work"), Step("ask", 23, 17), Step("talk", 74), Step("loop", 3, 1))),
    ),
    Mutant(
        "an excerpt is forgotten when a window is made anew",
        "nexus.assembly.fit.view:_pins", "refs, limit = excerpt_refs(cut, mark)", "refs, limit = (), 0",
        ("excerpts", "same bytes", "kept window"),
        Script("gpt-4o", 1_600, "keep_user_turns", None, 0, (*[ASK] * 9, Step("compact"), ASK, ASK)),
    ),
    Mutant(
        "a pin is lost where the note of what is not shown stands",
        "nexus.assembly.fit.pins:with_note", "pin.place <= last", "pin.place < last", ("pins word for word",),
        Script("gpt-4o", 900, "keep_user_turns", None, 0, (*[ASK] * 7, Step("compact"), Step("pin", 0, 12), ASK)),
    ),
    Mutant(
        "a turn that the user pinned is counted as not shown",
        "nexus.assembly.fit.pins:unshown_turns",
        "max(count - len(pinned_places.intersection(withheld_refs(cut, mark))), 0)", "count", ("user turns",),
        Script("gemini-2.5-pro", 450, "keep_user_turns", None, 0,
            (Step("talk"), ASK, Step("ask", 130), Step("compact"), Step("ask", 0, 255)), 1),
    ),
)  # fmt: skip


@contextmanager
def broken_by(mutant: Fault) -> Generator[None]:
    """Puts the fault in, and takes it out again."""
    module_name, _, path = mutant.where.partition(":")
    module = import_module(module_name)
    owner_name, _, name = path.rpartition(".")
    owner: Any = getattr(module, owner_name) if owner_name else module
    original = inspect.getattr_static(owner, name)
    source = textwrap.dedent(inspect.getsource(original))
    assert source.count(mutant.old) == 1, f"{mutant.where} has {mutant.old!r} {source.count(mutant.old)} times"
    found: dict[str, Any] = {}
    code = compile(
        f"from __future__ import annotations\n{source.replace(mutant.old, mutant.new)}", mutant.where, "exec"
    )
    exec(code, module.__dict__, found)
    changed = [(owner, name)] if owner_name else _users(original)
    for where, known_as in changed:
        setattr(where, known_as, found[name])
    try:
        yield
    finally:
        for where, known_as in changed:
            setattr(where, known_as, original)


def _users(function: object) -> list[tuple[Any, str]]:
    """Every module of the package that knows a function, and by which name."""
    modules = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] == "nexus"]
    return [(module, name) for module in modules for name, value in list(vars(module).items()) if value is function]
