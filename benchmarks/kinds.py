"""Texts of the kinds that fill prompts, in pieces of one size, always the same: nothing is loaded from anywhere.

Prose is Python's own manual and code its standard library, as installed; the rest is made, by a seeded generator.
"""

from __future__ import annotations

import argparse
import base64
import json
import pydoc_data.topics
import random
import string
import tarfile
from collections.abc import Callable, Iterator
from itertools import count, islice
from pathlib import Path

PIECE_CHARS = 6_000

_CJK = (
    ("我们", "他们", "这个团队", "数据库管理员", "新来的同事", "服务器", "这份报告", "客户"),
    ("昨天晚上", "在上线之前", "根据测试结果", "为了减少延迟", "经过讨论", "从下个月开始"),
    (
        "决定重新建立索引",
        "发现缓存没有命中",
        "需要检查权限设置",
        "把旧的记录移到了归档",
        "修改了配置文件",
        "停止了任务",
    ),
)
_JAPANESE = (
    ("担当者は", "このサービスは", "利用者が", "新しい設定では", "検索エンジンは"),
    ("会議の前に", "障害が起きたとき", "夜間の処理で", "先週の変更により", "負荷を下げるため"),
    (
        "索引を作り直しました",
        "ログを確認してください",
        "応答が遅くなります",
        "権限を見直す必要があります",
        "記録を保存します",
    ),
)
_KOREAN = (
    ("담당자는", "이 서비스는", "사용자가", "새로운 설정에서는", "검색 엔진은"),
    ("회의 전에", "장애가 발생했을 때", "야간 작업에서", "지난주의 변경으로", "부하를 줄이기 위해"),
    (
        "색인을 다시 만들었습니다",
        "로그를 확인해 주세요",
        "응답이 느려집니다",
        "권한을 검토해야 합니다",
        "기록을 저장합니다",
    ),
)
_WORDS = ("nice", "on my way", "ship it", "that broke again", "thanks", "see you there", "no idea", "love this", "ok")
_SERVICES = ("gateway", "orders", "billing", "search", "mailer", "scheduler")


def pieces(kind: str, number: int) -> list[str]:
    """So many pieces of a kind, each of 6,000 characters; `mixed` takes each from the next kind."""
    if kind == MIXED:
        streams = [_pieces(name) for name in KINDS]
        return [next(streams[at % len(streams)]) for at in range(number)]
    return list(islice(_pieces(kind), number))


def _pieces(kind: str) -> Iterator[str]:
    held = ""
    for text in KINDS[kind](random.Random(kind)):
        held += text
        while len(held) >= PIECE_CHARS:
            yield held[:PIECE_CHARS]
            held = held[PIECE_CHARS:]


def _prose(_: random.Random) -> Iterator[str]:
    topics: dict[str, str] = pydoc_data.topics.topics
    for name in sorted(topics, key=lambda name: -len(topics[name])):
        yield f"{topics[name]}\n\n"


def _code(_: random.Random) -> Iterator[str]:
    for module in (argparse, tarfile, json.decoder):
        yield Path(str(module.__file__)).read_text("utf-8")


def _json(chance: random.Random) -> Iterator[str]:
    for number in count(1):
        items = [
            {
                "sku": _hex(chance, 10).upper(),
                "quantity": chance.randint(1, 9),
                "price": round(chance.random() * 300, 2),
            }
            for _ in range(chance.randint(1, 4))
        ]
        order = {"id": number, "customer": {"name": _name(chance), "active": chance.random() < 0.7}, "items": items}
        yield json.dumps(order, indent=chance.choice((None, 2))) + "\n"


def _logs(chance: random.Random) -> Iterator[str]:
    for number in count():
        at = f"2026-03-{1 + number // 2000 % 28:02d}T{number // 60 % 24:02d}:{number % 60:02d}:07.{chance.randint(0, 999):03d}Z"
        level = chance.choice(("INFO", "INFO", "DEBUG", "WARN", "ERROR"))
        trace = f"{_hex(chance, 8)}-{_hex(chance, 4)}-4{_hex(chance, 3)}-a{_hex(chance, 3)}-{_hex(chance, 12)}"
        address = ".".join(str(chance.randint(1, 254)) for _ in range(4))
        what = f"GET /v1/items/{chance.randint(1, 99999)} {chance.choice((200, 200, 304, 404, 500))}"
        yield f"{at} {level} {chance.choice(_SERVICES)} [{trace}] {address} {what} {chance.randint(1, 4000)}ms\n"


def _cjk(chance: random.Random) -> Iterator[str]:
    while True:
        yield f"{''.join(map(chance.choice, _CJK))}。"
        yield f"{''.join(map(chance.choice, _JAPANESE))}。" if chance.random() < 0.3 else ""
        yield f" {' '.join(map(chance.choice, _KOREAN))}.\n" if chance.random() < 0.3 else ""


def _base64(chance: random.Random) -> Iterator[str]:
    while True:
        yield base64.encodebytes(chance.randbytes(570)).decode()


def _emoji(chance: random.Random) -> Iterator[str]:
    while True:
        shown = "".join(chr(chance.randint(0x1F600, 0x1F64F)) for _ in range(chance.randint(1, 4)))
        yield f"{chance.choice(_WORDS)} {shown}{chr(chance.randint(0x1F900, 0x1F9B3))} "


def _hex(chance: random.Random, digits: int) -> str:
    return "".join(chance.choices("0123456789abcdef", k=digits))


def _name(chance: random.Random) -> str:
    return "".join(chance.choices(string.ascii_lowercase, k=6)).capitalize()


KINDS: dict[str, Callable[[random.Random], Iterator[str]]] = {
    "prose": _prose,
    "code": _code,
    "JSON": _json,
    "logs": _logs,
    "CJK": _cjk,
    "base64": _base64,
    "emoji": _emoji,
}
MIXED = "mixed"
