"""Texts that ship with the package, and the starter texts that `nexus init` writes. An unchanged one counts as absent."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_UNCHANGED = "<!-- This is an untouched template"  # start of a template's first line, which users are asked to delete


@cache
def prompt_text(name: str, package: str = __name__) -> str:
    """Return a packaged text without its final line break."""
    return (files(package) / name).read_text("utf-8").removesuffix("\n")


@cache
def templates() -> dict[str, str]:
    """Return each template's text by its path in a workspace."""
    return dict(sorted(_texts(files(__name__) / "templates", "").items()))


@cache
def template_texts() -> frozenset[str]:
    """Return the templates' texts without outer white space, for comparison with a workspace's files."""
    return frozenset(text.strip() for text in templates().values())


def without_marker(text: str) -> str:
    """Return an edited template without the line that marks it as unchanged; any other text as it is."""
    first, _, rest = text.lstrip().partition("\n")
    if first.startswith(_UNCHANGED) and first.rstrip().endswith("-->"):
        return rest
    return text


def without_template_comments(text: str) -> str:
    """Return the text without comments that a template has: they are for the user, and never sent to a model."""
    if "<!--" in text:
        return _template_comment().sub("", text)
    return text


@cache
def _template_comment() -> re.Pattern[str]:
    """Return the expression for a template's comment, with the lines that only it fills and empty lines after it."""
    found = {re.escape(comment) for text in templates().values() for comment in _COMMENT.findall(text)}
    comment = f"[ \\t]*(?:{'|'.join(sorted(found))})"
    return re.compile(rf"(?:\A|(?<=\n\n)){comment}[ \t]*(?:\n+|\Z)|(?m:^){comment}[ \t]*(?:\n|\Z)|{comment}")


def _texts(folder: Traversable, prefix: str) -> dict[str, str]:
    texts: dict[str, str] = {}
    for item in folder.iterdir():
        name = f"{prefix}{item.name}"
        if item.is_dir():
            texts.update(_texts(item, f"{name}/"))
        elif item.name.endswith(".md"):  # an installed package may have `__pycache__` here
            texts[name] = item.read_text("utf-8")
    return texts
