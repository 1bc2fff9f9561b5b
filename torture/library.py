"""A ledger with everything in it, and all that can be asked of it, to compare a damaged copy with the original."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from nexus.errors import LedgerError
from nexus.ledger.sessions import Alias, NewRefUpdate, SessionMetadata
from nexus.ledger.sqlite import SqliteLedger
from nexus.types.ledger_entries import Commit, Compaction, NewEntry, SizedMessage, StoredCalibration
from nexus.types.message import Message, Text, TokenSize, user
from torture import traffic

LABELS: Final = ("first", "second", "third", "fork", "fork of the fork", "rewound", "subagent", "archived", "中文 会话")
ALIASES: Final = ("a name", "another name")
MODELS: Final = (("openai", "gpt-5"), ("anthropic", "claude-5"))


class Question(Struct, frozen=True):
    """Something asked of a ledger. `needed` says that assembling a context asks it."""

    name: str
    ask: Callable[[SqliteLedger], object]
    needed: bool = True


class Reply(Struct, frozen=True):
    """What a ledger said: a value, or the name of an error of ours, or an error that is none of ours."""

    value: object = None
    error: str = ""
    foreign: bool = False


def make(path: Path) -> None:
    """Writes the ledger and closes it, so that all of it is in one file: the same bytes each time."""
    ledger = SqliteLedger(str(path), clock_ms=lambda: traffic.FIRST_MS)
    instructions = Message("system", (Text("Be exact. " * 30),))
    first = NewEntry(messages=(SizedMessage(instructions, TokenSize(90, 91, 92)),), at_ms=traffic.FIRST_MS)
    for label in ("second", "rewound", "中文 会话"):
        ledger.commit(label, Commit((first,)), SessionMetadata(title=f"The title of {label}", persona="Ada"))
    for number in range(1, 13):
        for label in ("first", "second", "third", "archived", "中文 会话"):
            traffic.write(ledger, label, number)
        ledger.commit("rewound", Commit((_said("rewound", number),)))
    _mark(ledger)
    ledger.fork("fork", "second", 9)
    ledger.commit("fork", traffic.append("fork", 1))
    ledger.fork("fork of the fork", "fork", 7)
    ledger.commit("fork of the fork", Commit((_said("fork of the fork", 1),)))
    ledger.fork("rewound", "rewound", 5, reason="rewind")
    ledger.commit("rewound", Commit((_said("rewound", 50),)))
    metadata = SessionMetadata(
        title="A task", parent_session="first", parent_turn=2, task="Look it up", task_status="done"
    )
    ledger.commit("subagent", traffic.append("subagent", 1), metadata)
    ledger.update_refs(
        [NewRefUpdate("archived", ledger.thread_of("archived"), "archived", SessionMetadata(status="archived"))],
        [Alias("a name", "first", "renamed"), Alias("another name", "a name", "merged")],
    )
    for provider, model in MODELS:
        for samples in (1, 5):
            ledger.calibrate(provider, model, StoredCalibration(64 + samples, samples, traffic.FIRST_MS))
    ledger.close()
    _without_the_date(path)


def questions(ledger: SqliteLedger) -> list[Question]:
    """All that is asked; the threads are those that the labels of this (undamaged) ledger point to."""
    asked = [Question(f"resolve {name}", lambda at, name=name: at.resolve(name)) for name in (*LABELS, *ALIASES)]
    for label in (*LABELS, *ALIASES, "nobody"):
        asked.append(Question(f"thread_of {label}", lambda at, label=label: at.thread_of(label)))
        asked.append(Question(f"session {label}", lambda at, label=label: at.session(label)))
        asked.append(Question(f"moves {label}", lambda at, label=label: at.ref_updates(label), needed=False))
        asked.append(Question(f"known_keys {label}", lambda at, label=label: at.known_keys(label), needed=False))
    for thread in sorted({ledger.thread_of(label) or 0 for label in LABELS}):
        asked += _of_thread(thread)
    for provider, model in (*MODELS, ("openai", "unknown")):
        names = (provider, model)
        asked.append(Question(f"calibration {model}", lambda at, names=names: at.calibration(*names)))
    asked.append(Question("sessions", lambda at: at.sessions(every=True), needed=False))
    asked.append(Question("aliases", lambda at: at.aliases(every=True), needed=False))
    return asked


def _of_thread(thread: int) -> list[Question]:
    asks: dict[str, Callable[[SqliteLedger], Any]] = {
        "path": lambda at: at.path(thread),
        "head": lambda at: at.head(thread),
        "entries": lambda at: list(at.entries(thread)),
        "last entries": lambda at: list(at.entries(thread, max(0, at.head(thread)[0] - 3))),
        "marks": lambda at: at.checkpoints(thread),
        "instructions": lambda at: list(at.instructions(thread)),
        "last_cut": lambda at: at.last_cut(thread, traffic.VIEW),
        "last_assembly": lambda at: at.last_assembly(thread, traffic.VIEW),
        "no cut": lambda at: at.last_cut(thread, "another view"),
    }
    asked = [Question(f"{name} of thread {thread}", ask) for name, ask in asks.items()]
    whole = Question(f"assemblies of thread {thread}", lambda at: at.assemblies(thread), needed=False)
    return [*asked, whole]


def replies(path: Path, asked: list[Question]) -> list[Reply]:
    """What the ledger at the path says to each question; the same error to all when it cannot be opened."""
    try:
        ledger = SqliteLedger(str(path), create=False)
    except LedgerError as error:
        return [Reply(error=type(error).__name__)] * len(asked)
    except Exception as error:  # noqa: BLE001 - what kinds there are is the question
        return [Reply(error=repr(error), foreign=True)] * len(asked)
    found = [_reply(ledger, question) for question in asked]
    ledger.close()
    return found


def _reply(ledger: SqliteLedger, question: Question) -> Reply:
    try:
        return Reply(question.ask(ledger))
    except LedgerError as error:
        return Reply(error=type(error).__name__)
    except Exception as error:  # noqa: BLE001 - what kinds there are is the question
        return Reply(error=repr(error), foreign=True)


def _without_the_date(path: Path) -> None:
    """Takes from the file when it was made, which the ledger's clock does not say."""
    import apsw

    db: Any = apsw.Connection(str(path))
    db.execute("UPDATE migration SET at_ms=?", (traffic.FIRST_MS,))
    db.close()


def pages_of(path: Path) -> dict[int, str]:
    """The pages in use, each with the table or index that it belongs to. Free pages are left out."""
    import apsw

    db: Any = apsw.Connection(str(path))
    found = {int(page): str(name) for page, name in db.execute("SELECT pageno, name FROM dbstat")}
    db.close()
    return found


def leave_alone(path: Path, content: bytes) -> None:
    """Puts the file back as it was, without what SQLite keeps beside it."""
    for end in ("-wal", "-shm", "-journal"):
        Path(f"{path}{end}").unlink(missing_ok=True)
    path.write_bytes(content)


def dice_for(seed: int, number: int) -> random.Random:
    """The random choices of one round, whatever was chosen in others."""
    return random.Random(f"{seed}/{number}")


def _said(label: str, number: int) -> NewEntry:
    message = user(f"{label} says {number}. " + "y" * (number * 311 % 900), id=f"{label}-{number}")
    return NewEntry(
        messages=(SizedMessage(message, TokenSize(number, number, number)),), at_ms=traffic.FIRST_MS, starts_turn=True
    )


def _mark(ledger: SqliteLedger) -> None:
    for label in ("first", "second", "third"):
        for head in (6, 10):
            made = Compaction(1, head - 2, head - 1, f"A summary of {head} entries of {label}. " * 20)
            ledger.commit(label, Commit((NewEntry("compaction", body=msgspec.to_builtins(made)),)))
    newest = ledger.checkpoints(ledger.thread_of("third") or 0)[0].seq
    ledger.commit("third", Commit((NewEntry("undone", body={"of": newest}),)))
    pins = [NewEntry("pin", body={"seq": seq, "ord": 0, "reason": "kept"}) for seq in (2, 4)]
    ledger.commit("second", Commit((*pins, NewEntry("unpin", body={"seq": 2, "ord": 0}))))
    ledger.commit("archived", Commit((NewEntry("clear"),)))
    for label in ("first", "second"):
        traffic.write(ledger, label, 13)
