"""Many users of several tenants talk at once, in every way, with the same words and ids; nobody may get another's.

An independent model of who said what judges each context before its answer: no word of another principal, tenant or
conversation, each answer behind its own question, a client's list as it was sent. Afterward no event and no reply may be
lost, and no event have another's answer.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import apsw

import nexus
from nexus.ledger.sqlite import SqliteLedger, connection
from nexus.workspace.user_profiles import LOCAL_FILE
from torture.figures import Figures, Progress, require
from torture.identity_brokers import SUMMARY, run_brokers, unsettled
from torture.identity_judge import Judge, Talk, about
from torture.identity_servers import run_server
from torture.identity_services import run_services
from torture.identity_steps import ListClient, Scheduler, Speaker

NAME = "identity"
ROUNDS = 6
"""Ledgers, one after the other: over 100,000 contexts. Fewer ledgers have `FEW_USERS`."""

TENANTS: Final = ("acme", "beta", "local")
USERS, FEW_USERS = 200, 12
THINGS: Final = 8
"""Things that a user does in one ledger by each program."""

PROGRAMS: Final = 2
"""Engines of each tenant, as of different programs."""


Way: TypeAlias = Callable[[Judge, Path, int], None]
"""Lets so many users talk in a ledger."""


def run(rounds: int, seed: int, folder: Path, progress: Progress) -> Figures:
    """Let all users talk in so many ledgers. Raises AssertionError with the violations."""
    users = USERS if rounds >= ROUNDS else FEW_USERS
    counts = Counter[str]()
    for number in range(rounds):
        counts.update(one_ledger(folder / f"{number}.db", random.Random(f"{seed} {number}"), users))
        progress(number + 1, rounds)
    return Figures(NAME, rounds, dict(sorted(counts.items())))


def by_turns(judge: Judge, path: Path, users: int) -> None:
    """Let users talk by turns, calls and contexts without a turn, alone and in sessions that they share."""
    with _programs(path) as engines:
        scheduler = Scheduler(judge)
        for user in range(users):
            tenant = TENANTS[user % len(TENANTS)]
            engines[tenant][0].user_profiles.put(f"u{user}", {"friends_profile": about(tenant, user)})
            make = (judge, scheduler, engines[tenant], tenant)
            neighbor = user + len(TENANTS) if user + len(TENANTS) < users else user % len(TENANTS)
            scheduler.add(Speaker(*make, (user,), f"u{user}"), THINGS)
            scheduler.add(Speaker(*make, (user,), f"app{user}", named=False), THINGS)
            scheduler.add(Speaker(*make, (user, neighbor), f"group{user}"), THINGS)
        scheduler.run()


def by_lists(judge: Judge, path: Path, users: int) -> None:
    """Let users talk by programs that have the whole list."""
    with _programs(path) as engines:
        scheduler = Scheduler(judge)
        for user in range(users):
            tenant = TENANTS[user % len(TENANTS)]
            for place in _places(user):
                scheduler.add(ListClient(judge, engines[tenant], tenant, user, *place), THINGS)
        scheduler.run()


def by_brokers(judge: Judge, path: Path, users: int) -> None:
    """Let users send events to brokers. Each must end as done, or with a reason."""
    asyncio.run(run_brokers(judge, path, TENANTS, users, THINGS))
    left = unsettled(path)
    judge.require(not left, f"events were accepted, and have no end: {left[:5]}")


def by_server(judge: Judge, path: Path, users: int) -> None:
    """Let users talk to agents of a server."""
    asyncio.run(run_server(judge, partial(_engine, path), TENANTS, users, THINGS))


def by_services(judge: Judge, path: Path, users: int) -> None:
    """Let users send runs to services. Each must end as done, or with a reason."""
    asyncio.run(run_services(judge, path, TENANTS, users, THINGS))
    left = unsettled(path)
    judge.require(not left, f"runs were accepted, and have no end: {left[:5]}")


WAYS: Final[tuple[Way, ...]] = (by_turns, by_lists, by_brokers, by_server, by_services)


def one_ledger(path: Path, dice: random.Random, users: int, ways: Sequence[Way] = WAYS) -> Counter[str]:
    """Let users talk in one ledger, and judge it. Raises AssertionError."""
    connection.SYNCHRONOUS = "OFF"  # no power is lost here
    judge = Judge(dice)
    SqliteLedger(str(path)).close()
    (path.parent / LOCAL_FILE).write_text(json.dumps({"friends_profile": about("local", None)}), "utf-8")
    for way in ways:
        way(judge, path, users)
        require(not judge.faults, judge.verdict())
    with _programs(path) as engines:
        for talk in judge.talks:
            _check_session(judge, talk, engines[talk.tenant][0])
    judge.stored(_stored_answers(path))
    require(not judge.faults, judge.verdict())
    return judge.counts


@contextmanager
def _programs(path: Path) -> Generator[dict[str, list[nexus.Engine]]]:
    """Open the engines of all tenants."""
    with ExitStack() as stack:
        yield {name: [stack.enter_context(_engine(path, name)) for _ in range(PROGRAMS)] for name in TENANTS}


def _engine(path: Path, tenant: str) -> nexus.Engine:
    store = SqliteLedger(str(path), tenant=tenant)
    return nexus.open(ledger=store, model="gpt-4o", home=path.parent, local_user=tenant == "local")


def _places(user: int) -> list[tuple[dict[str, Any], bool, bool]]:
    """Return what the list clients of one user say of themselves, whether they send windows, and common letters."""
    principal = f"u{user}"
    return [
        ({}, False, True),
        ({"scope": principal}, False, False),
        ({"principal": principal}, False, True),
        ({"scope": "app", "principal": principal}, True, False),
        ({"scope": "app", "principal": principal}, True, False),
        ({"conversation": "1", "principal": principal}, True, True),
        ({"conversation": f"c{user}"}, True, True),
    ]


def _check_session(judge: Judge, talk: Talk, nx: nexus.Engine) -> None:
    """Check a conversation as it is stored now."""
    if not talk.label or nx.ledger.store.resolve(talk.label) is None:
        return
    messages = [message for message in nx.history(talk.label) if message.role != "tool"]
    judge.only(talk, " ".join(message.text() for message in messages), "the session")
    said = [(message.role, message.text()) for message in messages if not message.text().startswith(SUMMARY)]
    judge.order(talk, said, known=len(talk.answered), where="the session")
    judge.counts["sessions checked"] += 1


def _stored_answers(path: Path) -> list[tuple[str, str]]:
    """Return tenant and content of each stored message of an assistant, read without Nexus."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        return [(str(tenant), str(text)) for tenant, text in db.execute(_ANSWERS).fetchall()]
    finally:
        db.close()


_ANSWERS: Final = "SELECT tenant, content FROM message WHERE role='assistant'"
