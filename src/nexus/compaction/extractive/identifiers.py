"""Exact identifiers: names that are of no use when one character is wrong, so no summary may paraphrase them."""

from __future__ import annotations

import re
from collections.abc import Iterator

MOST_CHARS = 160

_FORMS: tuple[tuple[str, int, str], ...] = (
    ("url", 60, r"https?://[^\s<>\"'`)\]}|\\，。；]{4,300}"),
    ("email", 60, r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,4}"),
    ("uuid", 55, r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"),
    ("path", 50, r"(?<![\w/.-])(?:~|\.{1,2})?/?(?:[\w.@+-]{1,80}/){1,12}[\w.@+-]{0,80}[\w]"),
    (
        "path",
        45,
        (
            r"(?<![\w/.-])[\w-]{1,60}(?:\.[\w-]{1,30}){0,2}\.(?:py|pyi|js|mjs|ts|tsx|jsx|go|rs|java|kt|rb|php|c|h|cc|cpp|hpp|cs|"
            r"swift|md|rst|txt|json|jsonl|ya?ml|toml|ini|cfg|conf|env|sh|sql|db|sqlite|csv|tsv|xml|html?|css|scss|lock|log|ipynb|pdf|png)\b"
        ),
    ),
    ("hash", 50, r"\b(?=[0-9a-f]{0,39}\d)(?=[0-9a-f]{0,39}[a-f])[0-9a-f]{7,64}\b"),
    ("ticket", 55, r"\b[A-Z][A-Z0-9]{1,9}-\d{1,8}\b|(?<![\w&#])#\d{1,7}\b|\b[\w.-]{1,40}/[\w.-]{1,60}#\d{1,7}\b"),
    ("code", 50, r"\b(?=[A-Z0-9]{0,11}[A-Z])(?=[A-Z0-9]{0,11}\d)[A-Z0-9]{5,12}\b"),
    ("error", 45, r"\b(?:[A-Z][a-zA-Z]{2,40}(?:Error|Exception)|E[A-Z]{4,14}|[A-Z]{2,4}\d{3,5}|HTTP [45]\d\d)\b"),
    (
        "host",
        50,
        (
            r"\b(?:localhost|(?:\d{1,3}\.){3}\d{1,3}|[a-z0-9][\w-]{0,62}(?:\.[a-z][\w-]{1,62}){1,4})(?::\d{2,5})\b|"
            r"\b(?:\d{1,3}\.){3}\d{1,3}\b|\b[a-z0-9][\w-]{0,62}\.(?:internal|local|com|org|net|io|dev|ai)\b"
        ),
    ),
    ("port", 50, r"\b[Pp]ort \d{2,5}\b"),
    ("version", 40, r"\bv?\d{1,4}\.\d{1,4}\.\d{1,6}(?:[-+.]?[0-9A-Za-z.]{1,20})?\b|\bv\d{1,4}(?:\.\d{1,4})?\b"),
    (
        "amount",
        40,
        r"[$€£¥]\s?\d[\d,.]{0,14}\d?(?:\s?[kKmM]\b)?|\b\d[\d,.]{0,14}\s?(?:USD|EUR|GBP|CHF|JPY|CNY|dollars?|euros?|元)",
    ),
    ("amount", 30, r"\b\d[\d,.]{0,12}\s?(?:[KMGT]i?B|ms|kg|km|px|%)(?!\w)"),
    ("env", 45, r"\b[A-Z][A-Z0-9]{1,30}_[A-Z0-9_]{1,60}\b"),
    ("name", 35, r"(?<!`)`([^`\s][^`\n]{0,78})`(?!`)"),
    ("date", 30, r"\b\d{4}-\d{2}-\d{2}\b"),
)
_FIND = tuple((kind, weight, re.compile(form)) for kind, weight, form in _FORMS)


def identifiers(text: str) -> Iterator[tuple[str, str, int]]:
    """Every identifier in the text with its kind and weight, by kind; what lies inside a longer one is not repeated."""
    taken: list[tuple[int, int]] = []
    for kind, weight, form in _FIND:
        found: list[tuple[int, int]] = []
        for hit in form.finditer(text):
            start, end = hit.span(1) if hit.lastindex else hit.span()
            name = text[start:end].rstrip(".,;:!?'\"")
            if not name or len(name) > MOST_CHARS or _inside(taken, start, end):
                continue
            if (kind == "path" and not _is_path(name)) or (kind == "name" and name.isalpha() and name.islower()):
                continue
            found.append((start, end))
            yield name, kind, weight
        taken = sorted([*taken, *found])


def _inside(taken: list[tuple[int, int]], start: int, end: int) -> bool:
    """Whether a span overlaps one of the spans, which are sorted and do not overlap each other."""
    low, high = 0, len(taken)
    while low < high:
        middle = (low + high) // 2
        if taken[middle][1] <= start:
            low = middle + 1
        else:
            high = middle
    return low < len(taken) and taken[low][0] < end


def _is_path(name: str) -> bool:
    """Whether it is a path and not two words with a slash (`and/or`, `10/12`)."""
    if name.startswith(("/", "~", ".")) or name.count("/") > 1 or "/" not in name:
        return any(letter.isalpha() for letter in name)
    return any(letter in "._-" or letter.isdigit() for letter in name) and any(letter.isalpha() for letter in name)
