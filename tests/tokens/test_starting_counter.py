"""Counters without toktok's memory and start: the same counts, from a file that may be missing or damaged."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nexus
from cli.running import run
from nexus.tokens.counter import ToktokCounter
from nexus.tokens.starting_counter import MAX_CHARS, MAX_PIECE_BYTES, SmallCounter, StartingCounter
from nexus.tokens.vocabulary_file import Vocabulary

TOKTOK = ToktokCounter()

TEXTS = (
    "",
    "Which index? It's GIN, we're sure; DON'T ask.",
    '{"path": "src/nexus/__init__.py", "lines": [1, 20, 300, 4000]}\n\n\n  \t x  \n',
    "naïve façade — “quotes” … ‘x’ · Größe, ПРИВЕТ мир, 你好世界, 早上好。 ありがとう, 한국어 नमस्ते ไทย",
    "🧠👩🏽‍🚀 e\u0301 \u200b\u2028 \u00a0x ﷽ \ue000 1\u0660\u0661\u06602",
    "<|endoftext|> <|im_start|>",
    "CamelCaseHTTPServer snake_case kebab-case 0xDEADBEEF 3.14159 \r\n\r\n//// ----",
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of Nexus with the vocabulary."""
    folder = tmp_path_factory.mktemp("home")
    StartingCounter(TOKTOK, folder).count("The first count writes the file.")
    return folder


def has_vocabulary(counter: StartingCounter) -> bool:
    """Return True if a counter has a vocabulary beside toktok's."""
    return any(isinstance(value, SmallCounter) for value in vars(counter).values())


class NoToktok(ToktokCounter):
    """Fails if it is asked to count."""

    def count(self, text: str) -> int:
        """Raise AssertionError."""
        raise AssertionError(text)


@pytest.mark.parametrize("text", TEXTS)
def test_short_text_has_toktoks_count_without_toktok(home: Path, text: str) -> None:
    assert StartingCounter(NoToktok(), home).count(text) == TOKTOK.count(text)


def test_every_text_has_toktoks_count(home: Path) -> None:
    letters = st.text("aA'sſ \n1é你", max_size=30)
    words = st.tuples(letters, st.integers(1, 40)).map(lambda part: part[0].replace(" ", "") * part[1])

    @given(st.lists(st.one_of(st.text(), st.sampled_from(TEXTS), letters, words)).map("".join))
    def same(text: str) -> None:
        assert counter.count(text) == TOKTOK.count(text)

    counter = SmallCounter(TOKTOK, home)
    same()


def test_repositorys_own_files_have_toktoks_counts(home: Path) -> None:
    counter = SmallCounter(TOKTOK, home)
    for path in (*Path(__file__).parent.glob("*.py"), *Path(__file__).parents[2].glob("examples/**/*.md")):
        text = path.read_text("utf-8")
        assert counter.count(text) == TOKTOK.count(text), path


@pytest.mark.parametrize("text", ["x" * (MAX_PIECE_BYTES + 1), "\ud800", "a\x1cb", "\U000e0fff"])
def test_ambiguous_texts_and_endless_words_are_counted_by_toktok(home: Path, text: str) -> None:
    assert SmallCounter(TOKTOK, home).count(text) == TOKTOK.count(text)
    with pytest.raises(AssertionError):
        SmallCounter(NoToktok(), home).count(text)


@pytest.mark.parametrize("text", ["x" * MAX_PIECE_BYTES, "abcXYZ" * 3_000, "word " * 100_000])
def test_long_texts_are_counted_without_toktok_where_memory_counts(home: Path, text: str) -> None:
    assert SmallCounter(NoToktok(), home).count(text) == TOKTOK.count(text)


def test_texts_after_many_characters_are_counted_by_toktok(home: Path) -> None:
    counter = StartingCounter(NoToktok(), home)
    counter.count("word " * (MAX_CHARS // 5))
    with pytest.raises(AssertionError):
        counter.count("a")


@pytest.mark.parametrize("text", ["a" * (MAX_CHARS + 1), ""])
def test_vocabulary_is_freed_when_toktok_counts(home: Path, text: str) -> None:
    counter = StartingCounter(TOKTOK, home)
    counter.count("Which index?")
    assert has_vocabulary(counter)
    if text:
        counter.count(text)
    else:
        counter.build()
    assert counter.count("Which index?") == 3
    assert not has_vocabulary(counter)


def test_missing_vocabulary_is_written_by_another_process_where_memory_counts(tmp_path: Path) -> None:
    counter = SmallCounter(NoToktok(), tmp_path / "cache")
    counter.build()
    assert counter.count("Which index?") == 3
    (file,) = (tmp_path / "cache").iterdir()
    assert Vocabulary(file).rank(b"index") is not None
    assert Vocabulary(file).rank(b"Which index?") is None


@pytest.mark.parametrize("data", [b"", b"x" * 9, b"x" * 39, b"x" * 40, b"\xff" * 80, None])
def test_damaged_vocabulary_is_replaced(home: Path, tmp_path: Path, data: bytes | None) -> None:
    (file,) = home.iterdir()
    copy = tmp_path / file.name
    copy.write_bytes(file.read_bytes()[:-1] if data is None else data)
    assert SmallCounter(TOKTOK, tmp_path).count("Which index?") == 3
    assert StartingCounter(TOKTOK, tmp_path).count("Which index?") == 3
    assert copy.read_bytes() == file.read_bytes()
    assert StartingCounter(NoToktok(), tmp_path).count("Which index?") == 3


def test_unwritable_folder_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file in the way")
    assert StartingCounter(TOKTOK, tmp_path / "file").count("Which index?") == 3
    small = SmallCounter(TOKTOK, tmp_path / "file")
    small.build()
    assert small.count("Which index?") == 3
    assert StartingCounter(TOKTOK, Path(os.devnull) / "cache").count("Which index?") == 3


def test_vocabulary_is_built_once_by_warm(home: Path) -> None:
    with pytest.raises(AssertionError):
        StartingCounter(NoToktok(), home).build()
    with nexus.open(ledger=":memory:", home=home) as nx:
        nx.warm()
        assert isinstance(nx.counter, StartingCounter)
        assert nx.counter.count("Which index?") == 3


def test_folder_of_nexus_is_not_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with nexus.open(ledger=":memory:", home=tmp_path / "none") as nx:
        nx.assemble("Which index?")
    assert [path.suffix for path in (tmp_path / "cache" / "nexus").iterdir()] == [".table"]
    assert not (tmp_path / "none").exists()


def test_other_processes_count_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setenv("NEXUS_HOME", str(home))
    arguments = ("assemble", "Which index? 你好", "--at", "2026-03-06T14:30:00Z", "--json")
    first = run(*arguments, folder=tmp_path).json
    monkeypatch.setattr("nexus.engine.engine.starting_counter", lambda _: TOKTOK)
    assert run(*arguments, folder=tmp_path).json == first
