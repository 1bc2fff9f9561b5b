"""Links of the documentation lead to files and headings of this repository."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from contracts.modules import ROOT

PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(
    (ROOT / "docs").rglob("*.md")
)


def prose_of(page: Path) -> str:
    """Return a page's text without its code blocks."""
    return re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the anchors of a page, as GitHub makes them of its headings."""
    prose, names = prose_of(page), list[str]()
    for heading in re.findall(r"^#+ (.+)$", prose, re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        names.append(f"{name}-{count}" if (count := names.count(name)) else name)
    return frozenset([*names, *re.findall(r'<a id="([^"]+)"', prose)])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    broken: list[str] = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose_of(page)):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if "://" in link or (target.exists() and (not anchor or target.suffix != ".md" or anchor in anchors(target))):
            continue
        broken.append(link)
    assert broken == []
