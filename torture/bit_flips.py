"""One bit of a live page is flipped; all that assembly asks must be as it was, or be reported. Nothing changes silently.

The file holds everything a ledger can hold (`torture.library`). A label, mark or cut that vanishes is a silent change.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from msgspec import Struct

from nexus.ledger.sqlite import SqliteLedger
from torture import library
from torture.figures import Figures, Progress, lost, require, shares
from torture.library import Question, Reply
from torture.processes import answer

NAME = "bit_flips"
ROUNDS = 10_000

MOST_SHOWN = 20
FLIPS_OF_A_PROCESS = 50
IN_USE = 0.8
"""Share of the flips that hit a byte that is not zero; most others hit the room that is left in a page."""

PAGE = 4096


class Flip(Struct, frozen=True):
    """A bit: its page (from 1), the byte in the page and the bit in the byte."""

    page: int
    byte: int
    bit: int

    @property
    def offset(self) -> int:
        """The byte's place in the file."""
        return (self.page - 1) * PAGE + self.byte


class Finding(Struct, frozen=True):
    """What a flip did: in which table it was, and what became of what was asked."""

    flip: Flip
    table: str
    effect: str
    what: str = ""


def run(rounds: int, seed: int, folder: Path, progress: Progress) -> Figures:
    """Flips so many bits, one at a time. Raises AssertionError when one changed something silently."""
    original = folder / "original.db"
    answer(library.make, original)
    pages = answer(library.pages_of, original)
    content = original.read_bytes()
    counts, tables = Counter[str](), Counter[tuple[str, str]]()
    silent: list[Finding] = []
    for begin in range(0, rounds, FLIPS_OF_A_PROCESS):
        numbers = range(begin, min(begin + FLIPS_OF_A_PROCESS, rounds))
        flips = [_flip(seed, number, pages, content) for number in numbers]
        for found in answer(look, original, folder / "flipped.db", flips, pages):
            counts[found.effect] += 1
            tables[found.table, found.effect] += 1
            silent += [found] if found.effect == SILENT else []
        progress(numbers[-1] + 1, rounds)
    if silent:
        lost(f"{len(silent)} of {rounds} flipped bits changed something silently:\n{_listed(silent)}")
    by_table = {f"  in {table}: {effect}": count for (table, effect), count in sorted(tables.items())}
    effects = (NO_EFFECT, REPORTED, SILENT, LISTED)
    return Figures(NAME, rounds, {**shares({e: counts[e] for e in effects}, effects, rounds), **by_table})


NO_EFFECT = "no effect on anything that was asked"
REPORTED = "reported by an error of ours wherever it mattered"
SILENT = "changed something that assembly asks, silently"
LISTED = "changed only a list (keys, moves, aliases, manifests), silently"


def _listed(silent: list[Finding]) -> str:
    """The first findings, a line each."""
    return "\n".join(
        f"  page {one.flip.page} ({one.table}), byte {one.flip.byte}, bit {one.flip.bit}: {one.what[:160]}"
        for one in silent[:MOST_SHOWN]
    )


def compared(asked: list[Question], wanted: list[Reply], found: list[Reply]) -> tuple[str, str]:
    """The effect, and what shows it: the worst of all questions."""
    effect, what = NO_EFFECT, ""
    for question, before, after in zip(asked, wanted, found, strict=True):
        if after.foreign:
            return SILENT, f"{question.name}: {after.error}"
        if after.error and after.error not in MISLEADING:
            effect = REPORTED if effect == NO_EFFECT else effect
        elif after.error or after.value != before.value:
            shown = after.error or str(after.value)[:200]
            if question.needed:
                return SILENT, f"{question.name} says {shown}"
            effect, what = LISTED, f"{question.name} says {shown}"
    return effect, what


MISLEADING = ("NoSuchSession", "BadReference")
"""Errors that say that something was never there; for damage they are as bad as silence."""


def _flip(seed: int, number: int, pages: dict[int, str], content: bytes) -> Flip:
    """Every other flip is in a page of a random table, so that small tables are hit too; most are in bytes in use."""
    dice = library.dice_for(seed, number)
    table = dice.choice(sorted(set(pages.values()))) if number % 2 else ""
    page = dice.choice([page for page, of in sorted(pages.items()) if of == table or not table])
    used = [byte for byte in range(PAGE) if content[(page - 1) * PAGE + byte]]
    byte = dice.choice(used) if used and dice.random() < IN_USE else dice.randrange(PAGE)
    return Flip(page, byte, dice.randrange(8))


def look(original: Path, path: Path, flips: list[Flip], pages: dict[int, str]) -> list[Finding]:
    """Flip the bits one at a time in a copy, and compare all that can be asked with the original."""
    content = original.read_bytes()
    library.leave_alone(path, content)
    whole = SqliteLedger(str(path))
    asked = library.questions(whole)
    whole.close()
    wanted = library.replies(path, asked)
    broken = [f"{q.name}: {r.error}" for q, r in zip(asked, wanted, strict=True) if r.foreign]
    require(not broken, f"questions that fail without damage: {broken}")
    found: list[Finding] = []
    for flip in flips:
        changed = bytearray(content)
        changed[flip.offset] ^= 1 << flip.bit
        library.leave_alone(path, bytes(changed))
        effect, what = compared(asked, wanted, library.replies(path, asked))
        found.append(Finding(flip, pages[flip.page], effect, what))
    return found
