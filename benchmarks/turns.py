"""Turns of four messages for the ledger's benchmark, their texts cut at random from this repository's own documents."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.sessions import ROOT
from nexus.ledger.sqlite import SqliteLedger
from nexus.types.ledger_entries import NewEntry, SizedMessage
from nexus.types.message import Message, Part, Role, Text, TokenSize, ToolCall, ToolResult

TURNS = 10_000
TURN_MESSAGES = 4
WINDOW_TURNS = 50
NOW_MS = 1_760_000_000_000
SEED = 1
RESULT_CHARS = 1_200
CHINESE_SENTENCES = 400
GENERATED = "benchmarks.md"
"""The page that is made of figures is no text for measuring."""

SHORTEST = 20

DATA = (
    f"{TURNS:,} turns of {TURN_MESSAGES} messages: text, text and call, result of {RESULT_CHARS:,} characters in the "
    "mean, text; from README and docs/"
)

_MODEL = "claude-sonnet-4-5"
_SIZE = TokenSize(10, 11, 12, 0)
_WHO = ("团队", "用户", "编辑", "助手", "服务", "客户", "同事", "系统")
_DID = ("昨天检查了", "正在改写", "已经保存了", "没有找到", "打算删除", "还要比较", "刚刚读完", "必须修复")
_WHAT = ("数据库索引", "全文检索", "会话记录", "上下文窗口", "缓存前缀", "错误报告", "备份文件", "测试结果")


@dataclass(slots=True)
class Turns:
    """Turns as entries to commit: user; assistant with text and a call; result; assistant. Always the same ones.

    A result's length is exponentially distributed, `RESULT_CHARS` in the mean. Counts are fixed: none is taken here.
    """

    random: random.Random = field(default_factory=lambda: random.Random(SEED))
    corpus: str = ""

    def __post_init__(self) -> None:
        pages = sorted(page for page in (ROOT / "docs").glob("*.md") if page.name != GENERATED)
        files = [ROOT / "README.md", *pages]
        choose = self.random.choice
        chinese = "".join(f"{choose(_WHO)}{choose(_DID)}{choose(_WHAT)}。" for _ in range(CHINESE_SENTENCES))
        self.corpus = "\n".join([*(file.read_text("utf-8") for file in files), chinese])

    def take(self, count: int) -> Iterator[NewEntry]:
        """So many turns, made one at a time: many at hand would slow down what is measured beside them."""
        return (self._entry(number) for number in range(count))

    def _entry(self, number: int) -> NewEntry:
        messages = tuple(SizedMessage(message, _SIZE) for message in self._messages(number))
        usage = {"input_tokens": number, "output_tokens": 10, "cache_read_tokens": 5, "cache_write_tokens": 0}
        body = {"model": _MODEL, "provider": "anthropic", "role": "unified", "usage": usage}
        return NewEntry(messages=messages, body=body, starts_turn=True, keys=(f"turn:{number:08d}:{'0' * 20}",))

    def _messages(self, number: int) -> tuple[Message, ...]:
        pick, run = self.random.randrange, f"run-{number}"
        call = ToolCall(f"call_{number:08x}", "read_file", json.dumps({"path": f"src/{number}.py", "limit": 200}))
        told = ToolResult(call.id, (Text(self._text(int(self.random.expovariate(1 / RESULT_CHARS)) + SHORTEST)),))
        said: tuple[tuple[Role, tuple[Part, ...], str, str], ...] = (
            ("user", (Text(self._text(pick(40, 300))),), "human", ""),
            ("assistant", (Text(self._text(80)), call), "agent", _MODEL),
            ("tool", (told,), "agent", ""),
            ("assistant", (Text(self._text(pick(100, 900))),), "agent", _MODEL),
        )
        return tuple(
            Message(role, parts, f"m{number}.{place}", NOW_MS + 1_000 * place + number, run, source, model)
            for place, (role, parts, source, model) in enumerate(said)
        )

    def _text(self, chars: int) -> str:
        begin = self.random.randrange(len(self.corpus) - chars)
        return self.corpus[begin : begin + chars]


def open_ledger(file: Path) -> SqliteLedger:
    """A ledger at a path, made if it is not there. Its clock stands still, so that equal appends give equal rows."""
    return SqliteLedger(str(file), clock_ms=lambda: NOW_MS)
