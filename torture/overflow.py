"""Calls through `nexus.call` and `nexus.engine.overflow_recovery.recover` to providers that count otherwise, refuse, or overflow in silence.

A round is a session, a provider whose window is not the believed one, a summariser that may do anything, and several
calls in a row, tool loops among them, while others append, compact, undo and pin. After each call everything that is
promised is looked at; at last the provider becomes sane, and the session must still get through.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import nexus
from nexus.assembly.record import with_sizes
from nexus.engine import Engine
from nexus.engine import overflow_recovery as recovery
from nexus.errors import BudgetTooSmall
from nexus.ledger.sqlite import SqliteLedger
from nexus.providers.errors import classify
from nexus.types.ledger_entries import Commit
from nexus.types.message import Message, tool, user
from torture import overflow_checks as checks
from torture import talks
from torture.figures import Figures, Progress
from torture.overflow_checks import Scene
from torture.refusals import OVERFLOWS, SILENT, Provider, vocabularies
from torture.summarizers import PARTS, Playing

NAME = "overflow"
ROUNDS = 3_000

SESSION, MODEL = "main", "torture-1"
FORMS: Final = {"openai": "openai", "responses": "openai", "anthropic": "anthropic", "gemini": "gemini"}
"""How a request is sent, and the wire whose tokens count for it."""

TOOLS: Final[list[dict[str, Any]]] = [
    {"name": "run", "description": "Runs a command.", "parameters": {"type": "object", "properties": {}}}
]
MOST_MEANWHILE = 0.12
"""How often somebody else appends or marks while a call is under way."""


def run(rounds: int, seed: int, folder: Path, progress: Progress) -> Figures:  # noqa: ARG001 - nothing is stored in files
    """So many rounds. Raises AssertionError with the promise that did not hold, and in which round."""
    counts = Counter[str](dict.fromkeys(checks.COUNTED, 0))
    for number in range(rounds):
        try:
            _round(number, random.Random(f"{seed} {number}"), counts)
        except AssertionError as error:
            raise AssertionError(f"round {number} of seed {seed}: {error}") from error
        except Exception as error:
            raise AssertionError(f"round {number} of seed {seed}: {type(error).__name__}: {error}") from error
        progress(number + 1, rounds)
    counts["rounds"] = rounds
    return Figures(NAME, rounds, checks.told(counts))


def _round(number: int, dice: random.Random, counts: Counter[str]) -> None:
    scene = _scene(number, dice, counts)
    with scene.nx:
        waiting: tuple[Message, ...] = ()
        for _ in range(dice.randint(2, 4)):
            if dice.random() < 0.15:
                scene.provider.window = max(int(scene.provider.window * dice.choice((0.5, 0.8, 1.3, 3))), 1)
                counts["windows changed"] += 1
            waiting = _one_call(scene, waiting)
        checks.whole(scene)
        _sane(scene, waiting)


def _scene(number: int, dice: random.Random, counts: Counter[str]) -> Scene:
    """A session, a provider and a summariser for one round; every case of the corpus comes in turn."""
    case = OVERFLOWS[number % len(OVERFLOWS)]
    part = "" if dice.random() < 0.2 else dice.choice(list(PARTS))
    summarizer = Playing(part, dice.choice((0, 0, 4_000, 9_000))) if part else None
    form = dice.choice(list(FORMS))
    tokens = int(2_500 * 24 ** dice.random() ** 2)
    believed = max(int(tokens * dice.uniform(0.4, 2.5)), 3_000)
    kind = dice.choice(talks.KINDS)
    silent = dice.choice(SILENT) if dice.random() < 0.25 else ""
    at_window = silent in ("over", "empty", "exactly")
    believed = max(int(tokens * 0.7), 3_000) if at_window else believed
    pictures = dice.choice((85, 765, 1_600)) if kind in ("images", "mixed") else 0
    vocabulary, count = vocabularies(dice, pictures, most=at_window)
    absurd = dice.random() < 0.06
    window = dice.randint(1, 300) if absurd else int(min(believed * 0.8, tokens * 1.2) * dice.uniform(0.08, 1.2)) + 1
    if at_window:
        window = believed
    provider = Provider(dice, window, form, case, count, silent, trouble=dice.choice((0, 0.08)))
    if case.part == "bytes" and not silent:
        provider.most_bytes = int(tokens * 4 * dice.uniform(0.1, 1.2)) + 1_000
    entry = {"provider": case.provider, "wire": FORMS[form], "context_tokens": believed, "max_input_tokens": believed}
    nx = Engine(
        None,
        SqliteLedger(":memory:"),
        model=MODEL,
        models={MODEL: entry},
        clock_ms=lambda: talks.FIRST_MS,
        summarizer=summarizer,
        calibrate=dice.random() < 0.7,
    )
    nx.compactor.summarizer.timeout_s = summarizer.timeout_s if summarizer else nx.compactor.summarizer.timeout_s
    entries = [entry for turn in talks.turns(kind, tokens) for entry in turn.entries()]
    nx.ledger.commit(SESSION, Commit(tuple(entries)))
    request: dict[str, Any] = {"profile": "bare", "tools": TOOLS}
    if dice.random() < 0.3 and not at_window:
        request["budget"] = int(believed * dice.uniform(0.3, 1.1))
    if case.part == "output" or dice.random() < 0.1:
        names = {"gemini": ("max_output_tokens",), "anthropic": ("max_tokens",)}
        name = dice.choice(names.get(form, ("max_tokens", "max_completion_tokens")))
        request["model_config"] = {name: dice.randint(1, max(believed // 2, 2))}
    constant = vocabulary == "ratio" and kind not in ("images", "mixed")
    return Scene(dice, nx, provider, summarizer, request, counts, SESSION, constant=constant)


def _one_call(scene: Scene, waiting: tuple[Message, ...]) -> tuple[Message, ...]:
    """A call for a text, or for the results that the last answer waits for; returns what that one waits for."""
    dice = scene.dice
    event: Any = waiting or _text(dice)
    own = not waiting and dice.random() < 0.15
    done = checked_call(scene, event, _recovered if own else _called)
    return _results(dice, done)


def checked_call(
    scene: Scene, event: Any, call: Callable[[Scene, Any], recovery.Answer | None]
) -> recovery.Answer | None:
    """Make a call and check every promise about it. Returns the answer; None if an allowed error came instead."""
    before = checks.before(scene, event)
    done: recovery.Answer | None = None
    error: BaseException | None = None
    try:
        done = call(scene, event)
    except Exception as raised:  # noqa: BLE001 - which errors may come out is what is looked at
        error = raised
    checks.after(scene, before, done, error)
    return done


def _called(scene: Scene, event: Any) -> recovery.Answer:
    compact = scene.dice.random() < 0.85
    return nexus.call(scene.nx, event, scene.send(_meanwhile), session=SESSION, compact=compact, **scene.request)


def _recovered(scene: Scene, event: Any) -> recovery.Answer | None:
    """A call of one's own, recovered if it did not fit; None if it got through by itself."""
    scene.own, send = True, scene.send(_meanwhile)
    ctx = scene.nx.assemble(event, session=SESSION, **scene.request)
    try:
        reply = send(ctx)
    except Exception as error:
        if classify(error, provider=ctx.provider, window=ctx.accounting.model_info.context_tokens).kind != "overflow":
            raise
        scene.counts["calls of one's own recovered"] += 1
        return recovery.recover(scene.nx, ctx, error, send)
    scene.nx.record(ctx, reply)
    scene.recorded = (ctx, reply)
    return None


def _text(dice: random.Random) -> str:
    """What the user says: mostly short, at times very long."""
    words = dice.choice((6, 6, 6, 60, 600, 4_000))
    return f"And now {dice.randrange(1 << 30)}? {talks.prose(dice, words)}"


def _results(dice: random.Random, done: recovery.Answer | None) -> tuple[Message, ...]:
    """The results of the calls that an answer asks for; none if it asks for nothing, or nobody goes on."""
    if done is None:
        return ()
    rows = dice.choice((1, 1, 10, 100, 700))
    return tuple(tool(call.id, talks.lines(dice, rows), call.name) for call in done.result.tool_calls)


def _meanwhile(scene: Scene) -> None:
    """What somebody else does to the session while the provider thinks."""
    dice, nx = scene.dice, scene.nx
    if dice.random() > MOST_MEANWHILE:
        return
    what = dice.choice(("append", "compact", "pin", "undo"))
    scene.disturbed = True
    if what == "append" and scene.answers:
        what = "pin"
    if what == "append":
        said = [user(f"By the way {dice.randrange(1 << 30)}: {talks.prose(dice, 30)}")]
        nx.ledger.append(SESSION, with_sizes(said, nx.counter), starts_turn=True)
        scene.others += [message.text() for message in said]
    elif what == "compact":
        nx.compact(SESSION, **scene.request)
    elif what == "pin":
        rows = [row for entry in nx.ledger.entries(SESSION)[-8:] for row in entry.rows]
        nx.ledger.pin(SESSION, dice.choice(rows).ref)
    else:
        mark = nx.ledger.live(SESSION).checkpoint
        if mark is not None:
            nx.ledger.undo(SESSION)
    scene.counts["changes by others meanwhile"] += 1


def _sane(scene: Scene, waiting: tuple[Message, ...]) -> None:
    """With a provider that takes everything, the session goes on, or what is never cut is too large for the window."""
    scene.provider.sane, scene.provider.trouble, scene.provider.silent = True, 0.0, ""
    for event in (waiting, "And now, in one word?"):
        if not event:
            continue
        try:
            nexus.call(scene.nx, event, scene.provider.send, session=SESSION, **scene.request)
            scene.counts["sessions that went on with a sane provider"] += 1
        except BudgetTooSmall as error:
            checks.too_small(scene, event, error)
