"""The counter of a process's first calls: the same counts as toktok's, from a file that may be missing or damaged."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nexus
from cli.running import run
from nexus.tokens.counter import ToktokCounter
from nexus.tokens.starting_counter import MAX_CHARS, StartingCounter

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


class NoToktok(ToktokCounter):
    """Fails if it is asked to count."""

    def count(self, text: str) -> int:
        """Raise AssertionError."""
        raise AssertionError(text)


@pytest.mark.parametrize("text", TEXTS)
def test_short_text_has_toktoks_count_without_toktok(home: Path, text: str) -> None:
    assert StartingCounter(NoToktok(), home).count(text) == TOKTOK.count(text)


def test_every_text_has_toktoks_count(home: Path) -> None:
    @given(st.lists(st.one_of(st.text(), st.sampled_from(TEXTS), st.text("aA'sſ \n1é你", max_size=30))).map("".join))
    def same(text: str) -> None:
        assert counter.count(text) == TOKTOK.count(text)

    counter = StartingCounter(TOKTOK, home)
    counter._chars = -(10**9)  # pyright: ignore[reportPrivateUsage] - never too many
    same()


def test_repositorys_own_files_have_toktoks_counts(home: Path) -> None:
    counter = StartingCounter(TOKTOK, home)
    for path in (*Path(__file__).parent.glob("*.py"), *Path(__file__).parents[2].glob("examples/**/*.md")):
        text = path.read_text("utf-8")
        assert counter.count(text) == TOKTOK.count(text), path


@pytest.mark.parametrize("text", ["a" * (MAX_CHARS + 1), "x" * 500, "\ud800", "a\x1cb", "\U000e0fff"])
def test_long_and_ambiguous_texts_are_counted_by_toktok(home: Path, text: str) -> None:
    assert StartingCounter(TOKTOK, home).count(text) == TOKTOK.count(text)
    with pytest.raises(AssertionError):
        StartingCounter(NoToktok(), home).count(text)


@pytest.mark.parametrize("text", ["a" * (MAX_CHARS + 1), "x" * 500, "\ud800", ""])
def test_vocabulary_is_freed_when_toktok_counts(home: Path, text: str) -> None:
    def largest(counter: StartingCounter) -> int:
        return max(len(value) for value in vars(counter).values() if isinstance(value, dict))

    counter = StartingCounter(TOKTOK, home)
    counter.count("Which index?")
    assert largest(counter) > 100_000
    if text:
        counter.count(text)
    else:
        counter.build()
    assert counter.count("Which index?") == 3
    assert not any(isinstance(value, dict) for value in vars(counter).values())


@pytest.mark.parametrize("data", [b"", b"x" * 40, None])
def test_damaged_vocabulary_is_replaced(home: Path, tmp_path: Path, data: bytes | None) -> None:
    (file,) = home.iterdir()
    copy = tmp_path / file.name
    copy.write_bytes(file.read_bytes()[:-1] if data is None else data)
    assert StartingCounter(TOKTOK, tmp_path).count("Which index?") == 3
    assert copy.read_bytes() == file.read_bytes()
    assert StartingCounter(NoToktok(), tmp_path).count("Which index?") == 3


def test_unwritable_folder_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file in the way")
    assert StartingCounter(TOKTOK, tmp_path / "file").count("Which index?") == 3
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
    assert [path.suffix for path in (tmp_path / "cache" / "nexus").iterdir()] == [".msgpack"]
    assert not (tmp_path / "none").exists()


def test_other_processes_count_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setenv("NEXUS_HOME", str(home))
    arguments = ("assemble", "Which index? 你好", "--at", "2026-03-06T14:30:00Z", "--json")
    first = run(*arguments, folder=tmp_path).json
    monkeypatch.setattr("nexus.engine.engine.starting_counter", lambda _: TOKTOK)
    assert run(*arguments, folder=tmp_path).json == first
