"""Searches in SQLite and PostgreSQL: what was said, in which script, and which words must find it.

A row is one situation: who reported it, the text of a message, queries that find it and queries that do not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import product
from typing import TYPE_CHECKING

import pytest

from ledger.stores import append
from nexus.ledger.history_operations import Ledger
from nexus.ledger.postgres import PostgresLedger
from nexus.ledger.search_text import comparable, excerpt_pieces, parse_query
from nexus.ledger.sqlite import SqliteLedger
from nexus.ledger.store import LedgerStore
from nexus.types.message import user

if TYPE_CHECKING:
    from torture.postgres_server import PostgresServer

OWN = "own"
THAI = "https://github.com/emdash-cms/emdash/issues/2245"
ARABIC = "https://github.com/koreader/koreader/issues/10366"
CHINESE = "https://github.com/openclaw/openclaw/issues/140736"
MIXED = "https://github.com/NousResearch/hermes-agent/issues/54242"

ROWS: list[tuple[str, str, str, str, str]] = [
    # name, source, text, queries that find it, queries that do not
    ("Chinese", CHINESE, "我们在北京大学见面", "北京 京大 京", "大京"),
    ("Chinese and Latin", MIXED, "用SQLite索引", "sqlite 索引 用sqlite", "索sqlite"),
    ("Japanese", OWN, "東京タワーに行く", "タワー 東京", "タタ"),
    ("half-width kana", OWN, "ｶﾞﾗｽの窓", "ガラス ｶﾞﾗｽ", "カラス"),
    ("Korean", OWN, "서울에서 만나요", "서울 만나", "울서"),
    ("Thai", THAI, "ภาษาไทยไม่มีช่องว่าง", "ไทย ภาษา ช่องว่าง ว่าง", "ไทยภาษา"),
    ("Thai without tone marks", THAI, "น้ำส้มคั้น", "น้ำส้ม น้าสม สม", "สมน"),
    ("Lao", THAI, "ພາສາລາວບໍ່ມີຊ່ອງ", "ລາວ ພາສາ ຊ່ອງ", "ລາວພາສາ"),
    ("Khmer", THAI, "ភាសាខ្មែរសរសេរជាប់គ្នា", "ខ្មែរ ភាសា សរសេរ", "ខ្មែរភាសា"),
    ("Burmese", THAI, "မြန်မာဘာသာစကား", "မြန်မာ ဘာသာ စကား", "စကားဘာသာ"),
    ("Javanese", OWN, "ꦧꦱꦗꦮ", "ꦧꦱ ꦗꦮ", "ꦗꦮꦧ"),
    ("Arabic with signs", ARABIC, "مُحَمَّد يَكْتُب", "محمد يكتب مُحَمَّد", "محمود"),
    ("Arabic, lengthened", ARABIC, "محـــمد هنا", "محمد", "مح"),
    ("Arabic, alef with hamza", ARABIC, "أحمد هنا", "احمد أحمد", "حمد"),
    ("Arabic presentation forms", ARABIC, "ﻣﺮﺣﺒﺎ", "مرحبا", "مرح"),
    ("Persian with a zero-width joiner", OWN, "می\u200cروم", "میروم می\u200cروم", "روم"),
    ("Hebrew with points", ARABIC, "שָׁלוֹם עולם", "שלום עולם", "שלו"),
    ("Hindi", OWN, "हिन्दी में लिखा", "हिन्दी लिखा", "दी"),
    ("Tamil", OWN, "தமிழ் எழுத்து", "தமிழ் எழுத்து", "எழ"),
    ("Vietnamese", OWN, "Tiếng Việt rất đẹp", "tieng việt rat", "tie"),
    ("accents and case", OWN, "Été à l'île, CAFÉ", "ete ILE café cafe\u0301", "caf"),
    ("Greek", OWN, "ᾠδή ΤΈΛΟΣ", "ωδη τελος", "τελο"),
    ("Cyrillic", OWN, "ёлка Чай", "елка чай", "чаи\u0301к"),
    ("sharp s", OWN, "Straße", "strasse STRASSE", "strase"),
    ("full width", OWN, "ＡＢＣ１２", "abc12 ＡＢＣ１２", "abc"),
    ("ligature and fraction", OWN, "ﬁnal ½ ① x²", "final ½ 1 x2", "nal"),
    ("soft hyphen", OWN, "data\u00adbase", "database", "data"),
    ("emoji", OWN, "ship it 🚀 now", "🚀", "🎉"),
    ("emoji of a skin", OWN, "fine 👍🏽", "👍 👍🏿 👍🏽", "👎"),
    ("emoji with a variation", OWN, "we ❤️ it", "❤ ❤️", "💔"),
    ("emoji of a family", OWN, "👨\u200d👩\u200d👧 here", "👩 👨\u200d👩\u200d👧", "👦"),
    ("flag", OWN, "to 🇩🇪", "🇩🇪", "🇪🇩"),
    ("camel case", OWN, "call getUserName(id)", "user name getUserName get_user_name GETUSERNAME", "getuser ser"),
    ("Pascal case with capitals", OWN, "class HTTPServerError:", "http server error http_server_error", "https"),
    ("camel case with digits", OWN, "utf8Decoder", "utf8 decoder utf8decoder", "utf"),
    ("camel case with accents", OWN, "größeÄndern()", "grosse ändern andern größeändern", "großeän"),
    ("snake case", OWN, "read max_size_of", "max size max_size_of maxSizeOf maxsizeof", "maxsize"),
    ("constants", OWN, "MAX_TOKENS = 1", "tokens max_tokens maxTokens", "token"),
    ("private name", OWN, "self._innerLoop", "inner loop _innerloop innerloop", "innerl"),
    ("both in one", OWN, "test_readsUserFile", "reads user file test_reads_user_file testreadsuserfile", "readsuser"),
]  # fmt: skip


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> Iterator[LedgerStore]:
    if request.param == "sqlite":
        with closing(SqliteLedger(":memory:")) as opened:
            yield opened
    else:
        server: PostgresServer = request.getfixturevalue("postgres_server")
        with closing(PostgresLedger(server.new_ledger())) as opened:
            yield opened


def test_words_of_every_script_find_their_message_and_no_other(store: LedgerStore) -> None:
    for _, _, text, _, _ in ROWS:
        append(store, "main", user(text))
    search = Ledger(store).search
    for name, source, text, finding, others in ROWS:
        assert source == OWN or source.startswith("https://")
        missed = [query for query in finding.split() if text not in [hit.text for hit in search(query, limit=100)]]
        wrong = [query for query in others.split() if text in [hit.text for hit in search(query, limit=100)]]
        assert (name, missed, wrong) == (name, [], [])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_excerpt_marks_what_was_found(row: tuple[str, str, str, str, str]) -> None:
    _, _, text, finding, others = row
    for query, is_found in (*product(finding.split(), [True]), *product(others.split(), [False])):
        pieces = excerpt_pieces(f"{text} .", parse_query(query), before=20, chars=200)
        assert any(matches for _, matches in pieces) == is_found, (query, pieces)
        assert not pieces or "".join(piece for piece, _ in pieces).endswith(" .")


def test_phrase_is_not_in_a_text_and_the_parts_of_its_names(store: LedgerStore) -> None:
    append(store, "main", user("userName last"))
    assert Ledger(store).search('"last user"') == []
    assert len(Ledger(store).search('"user name"')) == len(Ledger(store).search('"username last"')) == 1


def test_sign_on_a_line_leaves_the_same_words_as_beside_a_letter_with_an_accent() -> None:
    signs = [chr(number) for number in range(0x80, 0x3100)]

    quick = [comparable(f"A{sign}B e") for sign in signs]
    full = [comparable(f"A{sign}B é") for sign in signs]

    assert quick == full
    assert comparable("12→A") == "12→a"
