"""How a text is written into memory: lines that cannot begin anything else, and nothing in them that is not seen."""

from __future__ import annotations

from nexus.errors import BadFact
from nexus.render.console import printable
from nexus.text.one_line import collapse_whitespace

INDENT = "  "
"""What stands before each further line of a text, so that it can begin neither an entry nor a heading."""


def normalize_fact(text: str, most_chars: int) -> str:
    """The text as memory keeps it: one line or several, tabs as spaces, control characters and such as escapes.

    What is not seen on a screen (changes of direction, tags, lone surrogates) is escaped too. Raises BadFact: it is empty, or has more than `most_chars` characters.
    """
    if len(text) > most_chars:
        raise BadFact(
            f"the text has {len(text):,} characters, and {most_chars:,} are the most: keep it in a file of its own, and "
            "note where that is"
        )
    lines = [printable(line.replace("\t", "    ")).rstrip() for line in text.splitlines()]
    kept = "\n".join(lines).strip()
    if not kept:
        raise BadFact("there is nothing to note: the text is empty")
    return kept


def comparison_key(text: str) -> str:
    """What two texts have in common that say the same: without case, and white space as above."""
    return collapse_whitespace(text).casefold()
