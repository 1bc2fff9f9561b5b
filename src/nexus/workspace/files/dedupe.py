"""A file that several sources of one context reach is shown once: known by the hash of its whole text."""

from __future__ import annotations

from collections.abc import Iterable

from nexus.types.block import Block, ContextWarning


def drop_repeated_files(blocks: Iterable[Block], seen: dict[str, str]) -> tuple[list[Block], list[ContextWarning]]:
    """The blocks whose file was not there before, and a warning for each that is left out.

    `seen` has the origin of each file's text by its hash; what is new is added to it. A block's first hash is that of its
    own file, further ones are of files that it includes. Blocks of no file all stay.
    """
    kept: list[Block] = []
    warned: list[ContextWarning] = []
    for block in blocks:
        first = seen.get(block.files[0]) if block.files else None
        if first is None:
            kept.append(block)
            for found in block.files:
                seen.setdefault(found, block.source)
        else:
            same = "it stands above already" if first == block.source else f"it has the same text as {first}"
            warned.append(ContextWarning(block.source, f"left out: {same}, and a text is shown once"))
    return kept, warned
