"""The laws of frames over random hostile texts. `python -m torture frames` tries 200,000 of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from laws.frame_laws import LAWS, searched
from laws.mutants import Mutant, broken_by

pytestmark = pytest.mark.slow

EXAMPLES = 2_000
SEARCHED_AT_MOST = 600


def test_no_text_forges_a_frame_and_every_text_comes_back(record_property: Callable[[str, object], None]) -> None:
    figures: Counter[str] = Counter()
    searched(EXAMPLES, 1, figures)
    record_property("figures", {f"law of frames: {name}": count for name, count in figures.items()})
    assert min(figures[law] for law in LAWS) > EXAMPLES / 50
    assert figures["examples with a mark"] > EXAMPLES / 2


MUTANTS = (
    Mutant("what is unseen is seen", "frames.places:_skip_blank", "in (BLANK, UNSEEN)", "== BLANK", ("is left", "are ours", "undone wrongly")),
    Mutant("the first line is passed over", "frames.places:lines", "chain((0,),", "chain((),", ("is left", "are ours")),
    Mutant("a line in a bracket has no speaker", "frames.places:_is_role", "at = closing.end()", "return False", ("is left", "are ours", "read otherwise")),
    Mutant("a spaced tag is always a comparison", "frames.places:_is_tag", "return name ==", "return False and name ==", ("is left", "are ours")),
    Mutant("a head ends with its line", "frames.places:_line_place", "_heads())", "_heads(), in_line=True)", ("is left", "are ours")),
    Mutant("letters are read one for a character", "frames.places:_end_of", "in shape:", "in shape[:1]:", ("is left", "are ours")),
    Mutant("words in tag characters are passed over", "frames.escaping:_passes", "text.isascii()", "True", ("is left", "are ours")),
    Mutant("what was not escaped is undone", "frames.escaping:_unescaped", "end = place.at + 1", "end = place.at + place.run", ("undone wrongly", "read otherwise")),
    Mutant("a value's backslashes are not doubled", "one_line:_encode", "match[0] * 2", "match[0]", ("undone wrongly", "read otherwise")),
)  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_fault_in_escaping_is_found(mutant: Mutant) -> None:
    with (
        broken_by(replace(mutant, where=f"nexus.text.{mutant.where}")),
        pytest.raises(AssertionError) as found,
    ):
        searched(SEARCHED_AT_MOST, 1, Counter())
    assert any(told in str(found.value) for told in mutant.laws), str(found.value)
