"""Checks of search: which messages have the words, in which scripts, and in which order they come."""

from __future__ import annotations

from nexus.ledger.sessions import NewRefUpdate, Query, SearchHit
from nexus.ledger.store import LedgerStore
from nexus.testing.ledger_conformance.expecting import equal
from nexus.testing.ledger_conformance.making import HOSTILE, append, thread_of
from nexus.testing.ledger_conformance.running import START_MS, Case, Checks
from nexus.types.ledger_entries import MessageRef
from nexus.types.message import Message, Text, Thinking, ToolCall, ToolResult, assistant, tool, user

checks = Checks()


def search_texts(store: LedgerStore, text: str, session: str = "") -> list[str]:
    """Return the texts of all hits, the newest first."""
    return [hit.text for hit in store.search(Query(text, session, limit=1_000, order="newest"))]


@checks.add
def all_words(case: Case) -> None:
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
    for query, texts in wanted.items():
        equal(search_texts(case.store, query), texts, f"the messages with {query!r}")


@checks.add
def phrases(case: Case) -> None:
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
    for query, texts in wanted.items():
        equal(search_texts(case.store, query), texts, f"the messages with {query!r}")


@checks.add
def without_spaces(case: Case) -> None:
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
    for query, texts in wanted.items():
        equal(search_texts(case.store, query), texts, f"the messages with {query!r}")


@checks.add
def many_scripts(case: Case) -> None:
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


@checks.add
def parts_and_roles(case: Case) -> None:
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
    texts = [
        "one zebra",
        'called\nfind\n{"animal": "zebra", "n": 9',
        "a zebra?\nthought\nfind_zebra\n{}",
        "zebra asked",
    ]
    equal(search_texts(case.store, "zebra"), texts, "all that was searched in the messages with the word")
    hits = case.store.search(Query("zebra", roles=("tool", "user"), order="newest"))
    equal([(hit.role, hit.text) for hit in hits], [("tool", "one zebra"), ("user", "zebra asked")], "two roles only")
    equal(case.store.search(Query("zebra", roles=("system",))), [], "a role without the word")


@checks.add
def path_of_a_session(case: Case) -> None:
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
    everywhere = ["word elsewhere", "word of the branch", "word three", "word two", "word one"]
    equal(search_texts(store, "word"), everywhere, "the hits in all sessions")
    store.fork("main", "main", 1)
    equal(search_texts(store, "word", "main"), ["word one"], "the hits after a rewind")


@checks.add
def pages(case: Case) -> None:
    """Limit and offset give all hits once, in either order; the newest is what was appended last, whatever its time."""
    for number in range(25):
        case.clock.now_ms = START_MS - number
        append(case.store, f"session {number % 3}", f"word {number}")
    newest = [f"word {number}" for number in range(24, -1, -1)]
    for order in ("relevance", "newest"):
        texts: list[str] = []
        for offset in range(0, 30, 7):
            hits = case.store.search(Query("word", limit=7, offset=offset, order=order))
            equal(len(hits), max(0, min(7, 25 - offset)), f"the hits of the page at {offset} by {order}")
            texts += [hit.text for hit in hits]
        equal(sorted(texts), sorted(newest), f"the hits of all pages by {order}")
        if order == "newest":
            equal(texts, newest, "their order")
    equal(case.store.search(Query("word", limit=0)), [], "the hits of a page of none")


@checks.add
def what_a_hit_says(case: Case) -> None:
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


@checks.add
def hostile_queries(case: Case) -> None:
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
    for query, texts in wanted.items():
        equal(search_texts(case.store, query), texts, f"the messages with {query!r}")


CHECKS = checks.failures
