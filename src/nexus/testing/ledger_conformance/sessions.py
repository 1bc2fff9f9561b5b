"""Checks of sessions: metadata, pointer updates, aliases, parents, and search."""

from __future__ import annotations

from msgspec.structs import replace

from nexus.errors import BadReference, BadSetting, HeadMoved
from nexus.ledger.sessions import Alias, NewRefUpdate, Query, RefUpdate, SearchHit, SessionInfo, SessionMetadata
from nexus.ledger.store import LedgerStore
from nexus.testing.ledger_conformance.harness import (
    HOSTILE,
    START_MS,
    LedgerCase,
    append,
    entry,
    equal,
    holds,
    mark,
    put,
    raises,
    rename,
    texts,
    thread_of,
)
from nexus.types.ledger_entries import MessageRef
from nexus.types.message import Message, Text, Thinking, ToolCall, ToolResult, assistant, tool, user

# names ----------------------------------------------------------------------------------------------------------------


def check_facts_of_the_first(case: LedgerCase) -> None:
    """The first commit gives a session its metadata; later commits change nothing."""
    metadata = SessionMetadata(
        "Title", "worker", "active", task="dig", task_status="begun", origin="x", routing_key="r"
    )
    put(case.store, "main", entry("one"), metadata=metadata)
    put(case.store, "main", entry("two"), metadata=SessionMetadata(title="Other"))
    put(case.store, "plain", entry("one"))
    equal(case.store.session("main"), RefUpdate("main", 1, 1, metadata, "created", START_MS), "the session")
    plain = case.store.session("plain")
    equal(plain.metadata if plain else None, SessionMetadata(), "the metadata of a session that was given none")


def check_pointer_moves(case: LedgerCase) -> None:
    """Updates are numbered, keep the metadata when none is given, and are refused when another came before."""
    store = case.store
    append(store, "main", "one")
    append(store, "other", "two")
    case.clock.now_ms += 5
    archived = SessionMetadata(title="Done", status="archived")
    updates = store.update_refs(
        [NewRefUpdate("main", 1, "archived", archived, 1), NewRefUpdate("main", 2, "merged", None, 2)]
    )
    wanted = [
        RefUpdate("main", 2, 1, archived, "archived", START_MS + 5),
        RefUpdate("main", 3, 2, archived, "merged", START_MS + 5),
    ]
    equal(updates, wanted, "the moves made")
    equal(
        store.ref_updates("main"),
        [RefUpdate("main", 1, 1, SessionMetadata(), "created", START_MS), *wanted],
        "all moves",
    )
    equal((store.session("main"), store.thread_of("main")), (wanted[1], 2), "the newest move, and the thread")
    for expected in (0, 2, 4):
        with raises(HeadMoved, f"a move after number {expected}", code="session_moved") as caught:
            store.update_refs([NewRefUpdate("other", 1, "no"), NewRefUpdate("main", 1, "no", expected_number=expected)])
        conflict = (caught[0].session, caught[0].expected, caught[0].actual)
        equal(conflict, ("main", expected, 3), "what the error says")
    equal(len(store.ref_updates("other")), 1, "the moves of the other session of a refused call")
    store.update_refs([NewRefUpdate("new", 1, "named", expected_number=0)])
    equal(texts(store, "new"), ["one"], "the texts of a label that was made by a move")


def check_wrong_threads(case: LedgerCase) -> None:
    """An update to a thread that is not there, or was erased, is refused."""
    store = case.store
    append(store, "main", "one")
    append(store, "gone", "two")
    store.erase([2], ["gone"])
    before = list(store.dump())
    for thread in (0, 2, 3, -1):
        with raises(BadReference, f"a move to thread {thread}"):
            store.update_refs(
                [NewRefUpdate("main", 1, "fine"), NewRefUpdate("main", thread, "no")], [Alias("m", "main", "fine")]
            )
    equal(list(store.dump()), before, "what is stored")


def check_archived(case: LedgerCase) -> None:
    """An archived or deleted session is listed on request only; it can be appended to, and stays archived."""
    store = case.store
    for name in ("active", "archived", "deleted"):
        append(store, name, "one")
    store.update_refs([NewRefUpdate("archived", 2, "archived", SessionMetadata(status="archived"))])
    store.update_refs([NewRefUpdate("deleted", 3, "deleted", SessionMetadata(status="deleted"))])
    equal(append(store, "archived", "two").head, 2, "the head of the archived session")
    equal([info.label for info in store.sessions()], ["active"], "the active sessions")
    statuses = {info.label: info.status for info in store.sessions(every=True)}
    wanted = {"active": "active", "archived": "archived", "deleted": "deleted"}
    equal(statuses, wanted, "all sessions")
    equal(store.thread_of("deleted"), 3, "the thread of the deleted session")
    labels = [store.labels_of(thread) for thread in (1, 2, 3, 4)]
    equal(labels, [["active"], ["archived"], [], []], "the labels of threads")
    case.clock.now_ms += 1
    store.update_refs([NewRefUpdate("second", 1, "created")])
    equal(store.labels_of(1), ["second", "active"], "the labels of a thread with two")
    begin_alike = {info.label for info in store.sessions(every=True, prefix="a")}
    equal(begin_alike, {"active", "archived"}, "the sessions whose labels begin alike")
    odd = {"\U0010ffffx", "\ud800y", "\ud7ffz", "%", "_"}
    for name in odd:
        append(store, name, "one")
    equal(odd - {info.label for info in store.sessions()}, set(), "the odd labels that are not listed")
    for name in odd:
        equal(
            [info.label for info in store.sessions(prefix=name[:1])],
            [name],
            f"the sessions that begin with {name[:1]!r}",
        )


def check_listed(case: LedgerCase) -> None:
    """Sessions are listed newest first, with the counts of their whole paths."""
    store = case.store
    metadata = SessionMetadata(title="T", persona="p")
    put(store, "main", entry("one", at_ms=10), mark("completed"), entry("two", at_ms=20), metadata=metadata)
    store.fork("branch", "main", 1, metadata=SessionMetadata(parent_session="main"))
    case.clock.now_ms = 30
    append(store, "branch", "three")
    store.fork("early", "main", 1)
    case.clock.now_ms = START_MS + 9
    append(store, "newest", "x")
    infos = {info.label: info for info in store.sessions()}
    branch = SessionInfo("branch", 2, "", 2, 2, 6 + 8, 10, 30, open_turn=True, parent_session="main")
    equal(infos["branch"], branch, "the fork")
    main = SessionInfo("main", 1, "T", 2, 2, 6 + 6, 10, START_MS, open_turn=True, persona="p")
    equal(infos["main"], main, "the source")
    equal([info.label for info in store.sessions()], ["newest", "main", "branch", "early"], "the order")
    early = infos["early"]
    equal((early.messages, early.turns, early.open_turn), (1, 1, True), "the counts of a fork that did not go on")
    equal(store.session_info("main"), main, "the line of one session")
    equal(store.session_info("unknown"), None, "the line of a name without a session")


def check_listed_in_pages(case: LedgerCase) -> None:
    """Pages of the list, one after the other, are the list; each session's own line is the one in it."""
    store = case.store
    put(store, "main", entry("one", at_ms=10), entry("two", at_ms=20), entry("three", at_ms=30))
    store.fork("middle", "main", 2)
    store.fork("early", "middle", 1)  # its entry is not in the thread that it was forked from
    case.clock.now_ms = 25  # the clock was set back
    store.fork("late", "main", 3)
    append(store, "late", "four")
    store.fork("other", "main", 2)
    case.clock.now_ms = 35
    append(store, "other", "three")  # as entry 3 of main, at another time
    store.fork("leaf", "other", 3)
    for at_ms, label in ((15, "b"), (15, "a"), (40, "archived"), (50, "deleted")):
        case.clock.now_ms = at_ms
        append(store, label, "x")
    archived = store.thread_of("archived")
    deleted = store.thread_of("deleted")
    store.update_refs([NewRefUpdate("archived", archived, "archived", SessionMetadata(status="archived"))])
    store.update_refs([NewRefUpdate("deleted", deleted, "deleted", SessionMetadata(status="deleted"))])
    append(store, "gone", "x")
    store.update_refs([NewRefUpdate("gone", None, "retired")])
    for every in (False, True):
        infos = store.sessions(every=every)
        equal([store.session_info(info.label) for info in infos], infos, "the lines of the sessions")
        equal(sorted(infos, key=lambda info: (-info.last_ms, info.label)), infos, "the order by time and label")
        for size in (1, 2, 3, 100):
            for start in range(0, len(infos) + size, size):
                page = store.sessions(every=every, limit=size, offset=start)
                equal(page, infos[start : start + size], f"the page of {size} at {start}")
        equal(store.sessions(every=every, offset=2), infos[2:], "the list after the first two")
        equal(store.sessions(every=every, limit=0), [], "a page of no sessions")
    for wrong in (-1, 1 << 70):
        with raises(BadSetting, f"a page of {wrong}"):
            store.sessions(limit=wrong)
        with raises(BadSetting, f"a page at {wrong}"):
            store.sessions(limit=1, offset=wrong)
    equal(
        [info.label for info in store.sessions()],
        ["leaf", "other", "main", "late", "middle", "a", "b", "early"],
        "the order",
    )


def check_retired(case: LedgerCase) -> None:
    """A label whose newest update has no thread is retired: its session is none, until it is used again."""
    store = case.store
    append(store, "main", "one")
    store.update_refs([NewRefUpdate("main", None, "retired")])
    newest = store.session("main")
    equal(newest.thread if newest else 0, None, "the thread of its newest move")
    equal(
        (store.resolve("main"), store.thread_of("main"), store.sessions(every=True)), (None, None, []), "what is there"
    )
    equal(store.thread(1).head_seq, 1, "the head of the thread that it left")
    equal(append(store, "main", "anew").thread, 2, "the thread when it is used again")
    equal(
        (texts(store, "main"), len(store.ref_updates("main"))), (["anew"], 3), "its texts, and the number of its moves"
    )


def check_aliases(case: LedgerCase) -> None:
    """An alias leads wherever a session is named, also over another alias, until it is removed."""
    store = case.store
    append(store, "main", "one", key="k")
    store.update_refs([], [Alias("m", "main", "short", 77), Alias("mm", "m", "shorter")])
    for name in ("m", "mm"):
        actual = (store.resolve(name), store.thread_of(name), store.known_keys(name), store.session(name))
        equal(actual, ("main", 1, {"k": 1}, None), f"what {name} stands for")
        append(store, name, f"by {name}")
    equal(store.fork("mm", "m", 2), 2, "the thread of a rewind by alias")
    equal(texts(store, "main"), ["one", "by m"], "the session's texts")
    expected = [Alias("m", "main", "short", 77), Alias("mm", "m", "shorter", START_MS)]
    equal(store.aliases(), expected, "the aliases")
    case.clock.now_ms += 5
    back = Alias("m", None, "back", START_MS + 5)
    store.update_refs([], [back])
    equal((store.resolve("m"), store.resolve("mm")), (None, None), "what they stand for, taken back")
    equal(store.aliases(every=True), [expected[0], back, expected[1]], "every change")
    store.update_refs([], [Alias("m", "main", "again")])
    equal(store.resolve("mm"), "main", "what an alias of an alias stands for when that is there again")
    for target in ("nobody", "mmm"):
        with raises(BadReference, f"an alias that leads to {target}, which is no session"):
            store.update_refs([NewRefUpdate("main", 1, "no")], [Alias("mmm", target, "no")])
    equal(store.ref_updates("main")[-1].reason, "fork", "the newest move of the session")


def check_renamed(case: LedgerCase) -> None:
    """A renamed session is found by its old name and can be continued by either."""
    store = case.store
    append(store, "old", "one")
    rename(store, "old", "new")
    equal((store.resolve("old"), store.thread_of("old")), ("new", 1), "what the old name stands for")
    append(store, "old", "two")
    append(store, "new", "three")
    equal(texts(store, "new"), ["one", "two", "three"], "the texts")
    equal([info.label for info in store.sessions(every=True)], ["new"], "the sessions")


def check_session_before_alias(case: LedgerCase) -> None:
    """A session comes before an alias of its name, and a label that is retired falls through to it."""
    store = case.store
    append(store, "main", "one")
    append(store, "other", "two")
    store.update_refs([], [Alias("x", "main", "first")])
    store.update_refs([NewRefUpdate("x", 2, "named")])
    equal((store.resolve("x"), store.thread_of("x")), ("x", 2), "what the name stands for when a session has it")
    store.update_refs([NewRefUpdate("x", None, "retired")])
    equal((store.resolve("x"), store.thread_of("x")), ("main", 1), "what it stands for when that is retired")
    with raises(BadReference, "an alias for the name of a session"):
        store.update_refs([], [Alias("main", "other", "no")])
    equal(store.resolve("main"), "main", "what the session's name stands for")


def check_circles_of_aliases(case: LedgerCase) -> None:
    """Aliases in a circle are refused, and never followed for ever."""
    store = case.store
    append(store, "main", "one")
    store.update_refs([], [Alias("a", "main", ""), Alias("b", "a", ""), Alias("c", "b", "")])
    before = list(store.dump())
    for name, target in (("a", "c"), ("a", "a"), ("b", "c"), ("d", "d")):
        with raises(BadReference, f"an alias from {name} to {target}"):
            store.update_refs([], [Alias(name, target, "circle")])
    with raises(BadReference, "a session that is retired in favour of its own alias"):
        store.update_refs([NewRefUpdate("main", None, "retired")], [Alias("main", "c", "circle")])
    equal(list(store.dump()), before, "what is stored")
    equal(store.resolve("c"), "main", "what the last alias stands for")


def check_parents(case: LedgerCase) -> None:
    """A subagent's session names its parent by session, turn and call, and all three must be there."""
    store = case.store
    put(store, "main", entry("dig"), entry(assistant("", ToolCall("call-1", "spawn", "{}")), starts_turn=False))
    store.fork("branch", "main", 2)
    append(store, "main", assistant("", ToolCall("call-2", "spawn", "{}")))
    metadata = SessionMetadata(parent_session="branch", parent_turn=1, parent_call_id="call-1", task="dig")
    put(store, "sub", entry("digging"), metadata=metadata)
    update = store.session("sub")
    equal(update.metadata if update else None, metadata, "the metadata")
    before = list(store.dump())
    wrong = (
        replace(metadata, parent_session="nobody"),
        replace(metadata, parent_turn=2),
        replace(metadata, parent_call_id="call-2"),
        replace(metadata, parent_call_id="call-9"),
    )
    for metadata in wrong:
        with raises(BadReference, f"a commit with {metadata}"):
            put(store, "new", entry("one"), metadata=metadata)
        with raises(BadReference, f"a move with {metadata}"):
            store.update_refs([NewRefUpdate("sub", thread_of(store, "sub"), "no", metadata)])
        with raises(BadReference, f"a fork with {metadata}"):
            store.fork("new", "main", 1, metadata=metadata)
    equal(list(store.dump()), before, "what is stored")
    store.update_refs([], [Alias("alias of main", "main", "")])
    by_alias = SessionMetadata(parent_session="alias of main", parent_turn=2, parent_call_id="call-2")
    put(store, "second", entry("one"), metadata=by_alias)
    holds(store.thread_of("second") is not None, "expected a session whose parent is named by an alias, found none")


def check_circles_of_parents(case: LedgerCase) -> None:
    """No session is its own parent or a parent of one of its parents."""
    store = case.store
    append(store, "a", "one")
    put(store, "b", entry("one"), metadata=SessionMetadata(parent_session="a"))
    put(store, "c", entry("one"), metadata=SessionMetadata(parent_session="b"))
    store.update_refs([], [Alias("alias of c", "c", "")])
    for parent in ("a", "b", "c", "alias of c"):
        with raises(BadReference, f"session a spawned by {parent}"):
            store.update_refs([NewRefUpdate("a", 1, "no", SessionMetadata(parent_session=parent))])
    with raises(BadReference, "a new session that spawned itself"):
        put(store, "d", entry("one"), metadata=SessionMetadata(parent_session="d"))
    equal((len(store.ref_updates("a")), store.thread_of("d")), (1, None), "the moves of a, and the thread of d")


# search ---------------------------------------------------------------------------------------------------------------


def search_texts(store: LedgerStore, text: str, session: str = "") -> list[str]:
    """Return the texts of all hits, the newest first."""
    return [hit.text for hit in store.search(Query(text, session, limit=1_000, order="newest"))]


def expect_hits(store: LedgerStore, wanted: dict[str, list[str]]) -> None:
    """Check the texts that each query finds, the newest first."""
    for query, hits in wanted.items():
        equal(search_texts(store, query), hits, f"the messages with {query!r}")


def check_all_words(case: LedgerCase) -> None:
    """All words must occur, in any order, case and accent, and as whole words."""
    for text in (
        "the Blue harbour",
        "a harbour, blue_and (wide)",
        "a harbour master",
        "Été à l'île, CAFÉ",
        "cafe\u0301 noir",
    ):
        append(case.store, "main", text)
    wanted = {
        "harbour blue": ["a harbour, blue_and (wide)", "the Blue harbour"],
        "HARBOUR master": ["a harbour master"],
        "harbours": [],
        "arbour": [],
        "harbour nothing": [],
        "ete ILE": ["Été à l'île, CAFÉ"],
        "café": ["cafe\u0301 noir", "Été à l'île, CAFÉ"],
        "cafe": ["cafe\u0301 noir", "Été à l'île, CAFÉ"],
    }
    expect_hits(case.store, wanted)


def check_any_word(case: LedgerCase) -> None:
    """Any word is enough if the query says so, also in another form. Messages with more of the words come first."""
    texts = ("we decided on a harbor", "a harbor for boats, as decided", "nothing of it", "deciding is hard", "a sail")
    for text in texts:
        append(case.store, "main", text)
    wanted = {
        "decided harbor boats": [texts[1], texts[0], texts[3]],
        "boats harbors": [texts[1], texts[0]],
        '"a harbor for" unknown': [texts[1]],
        "unknown": [],
        "sails": [texts[4]],
    }
    for query, hits in wanted.items():
        found = [hit.text for hit in case.store.search(Query(query, any_word=True))]
        equal(sorted(found), sorted(hits), f"the messages with any word of {query!r}")
        equal(found[:1], hits[:1], f"the best message for {query!r}")
    equal(search_texts(case.store, "decided boats sail"), [], "the messages with all three words")


def check_phrases(case: LedgerCase) -> None:
    """Words in double quotes must be adjacent."""
    for text in ("deep blue sea", "the sea is deep, blue", "a sea, deep blue", "blue deep"):
        append(case.store, "main", text)
    wanted = {
        '"deep blue"': ["a sea, deep blue", "the sea is deep, blue", "deep blue sea"],
        '"deep blue sea"': ["deep blue sea"],
        'sea "deep blue"': ["a sea, deep blue", "the sea is deep, blue", "deep blue sea"],
        '"blue deep" sea': [],
        '"blue': ["blue deep", "a sea, deep blue", "the sea is deep, blue", "deep blue sea"],
    }
    expect_hits(case.store, wanted)


def check_without_spaces(case: LedgerCase) -> None:
    """A run of Chinese, Japanese or Korean characters is a phrase, found inside longer text."""
    contents = (
        "我们在北京大学见面", "北大在京", "東京タワーに行く", "서울에서 만나요", "the 北京 office", "𠀀𠀁 rare",
        "사원", "ガラスがある",
    )  # fmt: skip
    for text in contents:
        append(case.store, "main", text)
    wanted = {
        "北京": [contents[4], contents[0]],
        "京大": [contents[0]],
        "大京": [],
        "京": [contents[4], contents[2], contents[1], contents[0]],
        "タワー": [contents[2]],
        "서울": [contents[3]],
        "ガラス": [contents[7]],
        "すが": [],
        "スが": [contents[7]],
        "北京 office": [contents[4]],
        "北 大": [contents[1], contents[0]],
        "𠀁": [contents[5]],
    }
    expect_hits(case.store, wanted)


def check_many_scripts(case: LedgerCase) -> None:
    """Every word of a message finds it, whatever its script."""
    contents = (
        "Мой чай и ёлка", "Ελληνικά ᾠδή ΤΈΛΟΣ", "Tiếng Việt rất đẹp", "Łódź straße ǅ İstanbul", "हिन्दी में लिखा", "สวัสดี ครับ",
        "مُحَمَّد يكتب", "שָׁלוֹם עולם", "Հայերեն ქართული", "தமிழ் எழுத்து", "x² ½ ① №7 ﬁn",
    )  # fmt: skip
    for text in contents:
        append(case.store, "main", text)
    for text in contents:
        for query in (*text.split(), text):
            equal(search_texts(case.store, query), [text], f"the messages with {query!r}")


def check_parts_of_names(case: LedgerCase) -> None:
    """The parts of a name are words, and a name in snake case is one word too; emoji and other widths are found."""
    contents = ("getUserName(id)", "get_user_name", "สวัสดีครับ", "ship it 🚀", "ＦＵＬＬ width")
    for text in contents:
        append(case.store, "main", text)
    both = [contents[1], contents[0]]
    wanted = dict.fromkeys(("user", "getusername", "getUserName", "get_user_name", '"user name"'), both)
    wanted |= {"สวัสดี": [contents[2]], "🚀": [contents[3]], "full": [contents[4]], "getuser": []}
    expect_hits(case.store, wanted)


def check_parts_and_roles(case: LedgerCase) -> None:
    """Words are found in text, thinking, tool calls and results, limited to the given roles."""
    contents = (
        user("zebra asked"),
        Message("assistant", (Thinking("a zebra?"), Text("thought"), ToolCall("c", "find_zebra", "{}"))),
        Message("assistant", (Text("called"), ToolCall("d", "find", '{"animal": "zebra", "n": 9'))),
        tool("d", "one zebra"),
        Message("tool", (ToolResult("d", (Text("none"),)),), meta='{"note": "zebra"}', source="zebra"),
    )
    for message in contents:
        append(case.store, "main", message)
    zebras = [
        "one zebra",
        'called\nfind\n{"animal": "zebra", "n": 9',
        "a zebra?\nthought\nfind_zebra\n{}",
        "zebra asked",
    ]
    equal(search_texts(case.store, "zebra"), zebras, "all that was searched in the messages with the word")
    hits = case.store.search(Query("zebra", roles=("tool", "user"), order="newest"))
    equal([(hit.role, hit.text) for hit in hits], [("tool", "one zebra"), ("user", "zebra asked")], "two roles only")
    equal(case.store.search(Query("zebra", roles=("system",))), [], "a role without the word")


def check_path_of_a_session(case: LedgerCase) -> None:
    """A session's search sees its path only, which for a fork includes the shared entries."""
    store = case.store
    for text in ("word one", "word two", "word three"):
        append(store, "main", text)
    store.fork("branch", "main", 2)
    append(store, "branch", "word of the branch")
    append(store, "other", "word elsewhere")
    equal(search_texts(store, "word", "main"), ["word three", "word two", "word one"], "the source's hits")
    equal(search_texts(store, "word", "branch"), ["word of the branch", "word two", "word one"], "the fork's hits")
    equal(search_texts(store, "word", "nobody"), [], "the hits of a session that is not there")
    with_one, *_ = store.search(Query("one"))
    equal(with_one.sessions, ("branch", "main"), "the sessions of an entry that a fork shares")
    with_three, *_ = store.search(Query("three"))
    equal(with_three.sessions, ("main",), "the sessions of an entry after the fork")
    everywhere = ["word elsewhere", "word of the branch", "word three", "word two", "word one"]
    equal(search_texts(store, "word"), everywhere, "the hits in all sessions")
    store.fork("main", "main", 1)
    equal(search_texts(store, "word", "main"), ["word one"], "the hits after a rewind")


def check_pages(case: LedgerCase) -> None:
    """Limit and offset give all hits once, in either order; the newest is what was appended last, whatever its time.

    Hits that only a deleted session has take no place on a page.
    """
    for number in range(25):
        case.clock.now_ms = START_MS - number
        append(case.store, f"session {number % 3}", f"word {number}")
        append(case.store, "deleted", f"word of the deleted {number}")
    deleted = case.store.thread_of("deleted")
    case.store.update_refs([NewRefUpdate("deleted", deleted, "deleted", SessionMetadata(status="deleted"))])
    newest = [f"word {number}" for number in range(24, -1, -1)]
    for order in ("relevance", "newest"):
        page_texts: list[str] = []
        for offset in range(0, 30, 7):
            hits = case.store.search(Query("word", limit=7, offset=offset, order=order))
            equal(len(hits), max(0, min(7, 25 - offset)), f"the hits of the page at {offset} by {order}")
            page_texts += [hit.text for hit in hits]
        equal(sorted(page_texts), sorted(newest), f"the hits of all pages by {order}")
        if order == "newest":
            equal(page_texts, newest, "their order")
    equal(case.store.search(Query("word", limit=0)), [], "the hits of a page of none")
    equal(len(case.store.search(Query("word", limit=1 << 70, offset=20))), 5, "the hits of a page without an end")
    equal(len(case.store.search(Query("word", every=True, limit=100))), 50, "the hits with those of deleted sessions")


def check_what_a_hit_says(case: LedgerCase) -> None:
    """A hit has the message's position, turn, role, time and text, and its sessions."""
    store = case.store
    append(store, "main", "first")
    append(store, "main", user("other", at_ms=5), assistant("the Needle", at_ms=6))
    append(store, "main", "needle without a time of its own", at_ms=8)
    thread = thread_of(store, "main")
    store.update_refs([NewRefUpdate("second name", thread, "shared")])
    names = ("main", "second name")
    wanted = [
        SearchHit(thread, MessageRef(3, 0), 3, "user", 8, "needle without a time of its own", names),
        SearchHit(thread, MessageRef(2, 1), 2, "assistant", 6, "the Needle", names),
    ]
    equal(store.search(Query("needle", order="newest")), wanted, "the hits")


def check_hostile_queries(case: LedgerCase) -> None:
    """No query is an error: one without a word finds nothing, and a search engine's own words are words."""
    append(case.store, "main", "cats AND dogs")
    append(case.store, "main", "dogs near cats")
    append(case.store, "main", HOSTILE)
    for query in ("", " ", "*", '"', '""', "(", "^", "-", "\x00", "\ud800", "!!! ???", '"*" (', "'; --", ":"):
        equal(search_texts(case.store, query), [], f"the messages with {query!r}")
    wanted = {
        "cats AND dogs": ["cats AND dogs"],
        "cats OR dogs": [],
        "NOT cats": [],
        "NEAR(cats dogs)": ["dogs near cats"],
        "cats*": ["dogs near cats", "cats AND dogs"],
        "text:cats": [],
        "half": [HOSTILE],
        "mark\x1aword": [HOSTILE],
    }
    expect_hits(case.store, wanted)
