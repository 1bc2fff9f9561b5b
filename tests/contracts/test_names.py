"""Names say what they are: few bare participles and adverbs, and fewer with every change.

A variable called `told` or `kept` leaves open what was told to whom. `history_header` and `kept_rows` do not.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

from contracts.modules import Module, modules

BARE_WORDS = re.compile(
    r"again|ahead|anew|apart|around|aside|asked|begun|beside|done|earlier|evicted|found|freed|fresh|front|given"
    r"|granted|heard|here|held|judged|kept|known|lean|least|left|lost|made|meant|most|named|offered|one|opened|own"
    r"|past|said|seen|sent|shown|spoken|standing|stood|strange|stuffed|taken|thawed|thinned|told|torn|whole"
    r"|withheld|word"
)

MOST_PERCENT = 0.2
"""Highest share of bound names that may be one of the bare words. Lower it when the share falls, never raise it."""


def test_the_share_of_bare_participles_among_names_does_not_grow() -> None:
    bound = [(module.name, name, line) for module in modules().values() for name, line in _bound_names(module)]
    bare = [f"{where}:{line} {name}" for where, name, line in bound if BARE_WORDS.fullmatch(name.strip("_").lower())]
    percent = 100 * len(bare) / len(bound)
    places = "\n".join(bare)
    assert percent <= MOST_PERCENT, f"{len(bare)} of {len(bound)} names, {percent:.2f} %:\n{places}"


DOCUMENTED_NAMES = frozenset(
    {
        "Agent",
        "ContextBuilder",
        "Message",
        "Session",
        "TiktokenCounter",
        "TokenCounter",
        "ToolCall",
        "ToolResult",
    }
)
"""Classes whose names a document gives that Nexus implements; another room has a class of the same name."""


def test_a_class_name_stands_in_one_module() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for module in modules().values():
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(module.name)
    twice = {name: names for name, names in places.items() if len(names) > 1 and name not in DOCUMENTED_NAMES}
    assert twice == {}


def _bound_names(module: Module) -> Iterator[tuple[str, int]]:
    """Yield every name that a module binds, with its line: variables, parameters, functions, classes."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name, node.lineno
