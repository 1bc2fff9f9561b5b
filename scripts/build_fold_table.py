"""Build `src/nexus/text/frames/data/shapes.json`: the letters that each character looks like in a frame tag.

    python -m pip install unicodedata2==18.0.0
    python scripts/build_fold_table.py

The table is made once, of one version of Unicode, and shipped: `unicodedata` differs from one Python to the next, and an
escape that is undone by another Python must be undone by the same rules. A table that differs needs a new
`MARKS_VERSION`, which a test insists on.

Facts: the Unicode Character Database by way of `unicodedata2` (categories, compatibility decompositions, names). The
look-alikes below are typed by hand; their idea, and that I, l, 1 and | are one shape, O and 0 another, and that m looks
like rn, are those of Unicode Technical Standard 39.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from pathlib import Path

import unicodedata2 as unicode

UNICODE = "18.0.0"
OUT = Path(__file__).parents[1] / "src/nexus/text/frames/data/shapes.json"

BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
BLANKS = "\t\u2800"
UNSEEN = "\u115f\u1160\u3164\uffa0\ufffc\ufffd\U0001171e"
"""Fillers of Hangul; what stands for an object; what becomes of a character that a request body cannot carry; and what
was a mark on its neighbour in earlier versions of Unicode."""

UNSEEN_CATEGORIES = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Mn", "Me"})
DASHES = "\u2212\u207b\u208b\u02d7\u06d4\u2043\u2500\u2501\u23af\u30fc\uff70\u3161\u2e3a\u2e3b\u2017"

SYMBOLS = {
    "<": "\u2039\u2329\u3008\u27e8\u276e\u276c\u2770\u02c2\u1438\u16b2\u227a\u22d6\u29fc\u2991\u00ab\u300a\u226a\u27ea\u2a79\u2af7\u22d8\U0001d236",
    ">": "\u203a\u232a\u3009\u27e9\u276f\u276d\u2771\u02c3\u1433\u227b\u22d7\u29fd\u2992\u00bb\u300b\u226b\u27eb\u2a7a\u2af8\u22d9\U00016f3f\U0001d237",
    "[": "\u3010\u3014\u27e6\u300c\u300e\u3016\u3018\u301a\u2045\u2772\u27ec\u298b\u298d\u298f\u23a1\u23a2\u23a3\u2308\u230a\u2e22\u2e24\u2e26\u2e55\u2e57\u2997\u27c5",
    "]": "\u3011\u3015\u27e7\u300d\u300f\u3017\u3019\u301b\u2046\u2773\u27ed\u298c\u298e\u2990\u23a4\u23a5\u23a6\u2309\u230b\u2e23\u2e25\u2e27\u2e56\u2e58\u2998\u27c6",
    "/": "\u2215\u2044\u29f8\u2571\u27cb\u31d3\u4e3f\u30ce\u3033\u1735\u2041\u2afb\U0001f67c\U0001d23a",
    ":": "\ua789\u2236\u02f8\u02d0\u05c3\u0703\u0704\u0903\u0a83\u0589\u16ec\u1803\u1809\u205a\u2982\u1361\u1365\ufe30\ufe13\ua4fd\u0b83\u2e2c",
    ";": "\u037e\u204f\u061b\u2e35\ufe14\ufe54\uff1b",
    "_": DASHES,
}
"""Which characters are taken for a mark's bracket, slash, colon; the compatibility forms of these come on their own."""

LETTERS = (
    # Greek
    "Αa Βb Εe Ζz Ηh Ιi Κk Μm Νn Οo Ρp Τt Υy Χx Ϲc Ϻm αa βb γy εe ιi ηn κk νv οo ρp σo ςc τt υu χx ωw ϲc ϳj ϵe",
    # Cyrillic
    "Аa Вb Еe Ѕs Іi Јj Кk Мm Нh Оo Рp Сc Тt Уy Хx Үy Ѵv Ԍg Ԛq Ԝw Һh Ӏi Ԁd ꓲi",
    "аa вb еe ѕs іi јj кk мm нh оo рp сc тt уy хx үy ѵv ԍg ԛq ԝw һh ӏi ԁd гr пn ьb ѡw ҽe ґr зz",
    # Armenian
    "Սu Տs Օo Լl Ոn Հh Աu սu օo ոn հh ցg զq լi յj քp տu",
    # Cherokee
    "ᎠD ᎡR ᎢT Ꭵi ᎪA ᎫJ ᎬE ᎳW ᎷM ᎻH ᎾO ᏀG ᏃZ ᏎS ᏒR ᏔW ᏕS ᏙV ᏚS ᏟC ᏢP ᏦK ᏧD ᏩG ᏮB ᏴB ᏞL ᏂH ᏆI ᎽY Ꮏt ᎰH Ꮟb ᎨH",
    # Lisu
    "ꓐb ꓑp ꓒp ꓓd ꓔt ꓖg ꓗk ꓘk ꓙj ꓚc ꓜz ꓝf ꓟm ꓠn ꓡl ꓢs ꓣr ꓤr ꓥv ꓦv ꓧh ꓨg ꓪw ꓫx ꓬy ꓮa ꓰe ꓲi ꓳo ꓴu",
    # Coptic
    "Ⲁa Ⲃb Ⲉe Ⲍz Ⲏh Ⲓi Ⲕk Ⲙm Ⲛn Ⲟo Ⲣp Ⲥc Ⲧt Ⲩy Ⲭx ⲁa ⲃb ⲉe ⲍz ⲏh ⲓi ⲕk ⲙm ⲛn ⲟo ⲣp ⲥc ⲧt ⲩy ⲭx",
    # Deseret, Osage, Tifinagh, Old Italic
    "𐐄o 𐐕c 𐐛l 𐐬o 𐐽c 𐑃i 𐓂o 𐓎o 𐓪o ⵏi ⵔo ⵙo ⵝx 𐌀a 𐌁b 𐌄e 𐌉i 𐌊k 𐌌m 𐌍n 𐌏o 𐌑m 𐌕t 𐌗x",
    # other shapes of Latin letters, which their names do not tell, and signs
    "ɑa ɡg ɩi ꟾi ꞁi ℓl ℮e ℴo ∊e ∈e ∩n ∪u ∨v ⋁v ⊂c ∣i ǀi │i ￨i ⏐i ❘i ∥i ⅼl Ⅰi ⅰi Ʀr ꝺd ꝼf ꞇt ƽs ƨs",
)
"""Letters of other scripts, each beside what it is taken for."""

STROKES = "\u01c0\u2223\u23fd\u05c0\u05d5\u05df\u0627\ufe8d\ufe8e\u07ca\u06f1\u0661"
"""One upright stroke, in other scripts."""

ROUND = "\u0665\u06f5\u0966\u09e6\u0a66\u0ae6\u0be6\u0c66\u0ce6\u0d66\u0e50\u0ed0\u1040\u06c1\u0647\u05e1\u3007\u0b20\u12d0\u101d\u0d20\u0d82\u2c9f\U000104ff"
"""One round shape, in other scripts; decimal zeros among them."""

NAMED = re.compile(
    r"(?:.* )?LATIN (?:SMALL |CAPITAL )?LETTER (?:SMALL CAPITAL |DOTLESS |SCRIPT |INSULAR |BLACKLETTER |LONG |STRETCHED "
    r"|TAILLESS |BARRED |OPEN |CLOSED |FINAL |MIDDLE-WELSH |ARCHAIC |BROKEN |AFRICAN |SMALL |CAPITAL )*([A-Z])(?: WITH (?!SMALL LETTER).+)?"
    r"|REGIONAL INDICATOR SYMBOL LETTER ([A-Z])|NEGATIVE (?:CIRCLED|SQUARED) LATIN CAPITAL LETTER ([A-Z])"
)
"""What the name of a character says of a Latin letter that it is."""

ONE_SHAPE = {"l": "i", "1": "i", "|": "i", "0": "o", "m": "rn"}
KEPT = frozenset("abcdefghijklmnopqrstuvwxyz<>[]/:;_")


def look_alikes() -> dict[str, str]:
    """All characters that are typed by hand above, with what they look like."""
    found = {char: symbol for symbol, chars in SYMBOLS.items() for char in chars}
    found |= {pair[0]: pair[1:].lower() for line in LETTERS for pair in line.split(" ")}
    return found | dict.fromkeys(STROKES, "i") | dict.fromkeys(ROUND, "o")


LOOK_ALIKES = look_alikes()


def folded(char: str) -> str | None:
    """What the character looks like: "" unseen, " " blank, a line break, "_" a joint, letters; None: nothing in a mark."""
    category = unicode.category(char)
    if char in BREAKS:
        return "\n"
    if category == "Zs" or char in BLANKS:
        return " "
    if category in UNSEEN_CATEGORIES or char in UNSEEN:
        return ""
    if category in ("Pd", "Pc"):
        return "_"
    shape = "".join(ONE_SHAPE.get(one, one) for one in _plain(char))
    return shape if shape and KEPT.issuperset(shape) else None


def _plain(char: str) -> str:
    parts = (one for one in unicode.normalize("NFKD", _latin(char)) if unicode.category(one) not in UNSEEN_CATEGORIES)
    small = "".join(map(_latin, parts)).casefold()
    return "".join(map(_latin, unicode.normalize("NFKD", small)))


def _latin(char: str) -> str:
    """The letter or sign that the character is taken for, by hand or by its name; else the character."""
    named = None if char in LOOK_ALIKES else NAMED.fullmatch(unicode.name(char, ""))
    return next(group for group in named.groups() if group).lower() if named else LOOK_ALIKES.get(char, char)


def ranges() -> dict[str, str]:
    """For each shape the characters that have it: hexadecimal numbers, `380+3` for 380 to 383."""
    found: defaultdict[str, list[list[int]]] = defaultdict(list)
    for code in range(sys.maxunicode + 1):
        shape = folded(chr(code))
        if shape is None:
            continue
        if found[shape] and found[shape][-1][1] == code - 1:
            found[shape][-1][1] = code
        else:
            found[shape].append([code, code])
    return {
        shape: " ".join(
            f"{first:x}" if first == last else f"{first:x}+{last - first:x}" for first, last in found[shape]
        )
        for shape in sorted(found)
    }


def text() -> str:
    """The file: one line for each shape. "" is unseen, " " blank, "_" a joint."""
    rows = ",\n".join(f" {json.dumps(shape)}: {json.dumps(listed)}" for shape, listed in ranges().items())
    return f'{{"unicode": "{UNICODE}", "shapes": {{\n{rows}\n}}}}\n'


if __name__ == "__main__":
    if unicode.unidata_version != UNICODE:
        sys.exit(f"unicodedata2 has Unicode {unicode.unidata_version}, and {UNICODE} is wanted")
    made = text()
    if "--check" in sys.argv[1:]:
        sys.exit(0 if OUT.read_text("utf-8") == made else f"{OUT.name} is not what this script makes")
    OUT.write_text(made, "utf-8")
    print(f"written: {OUT.name}, {len(made):,} bytes")
