"""Look a model's name up: its row of the snapshot, its family, and who serves it on which wire."""

from __future__ import annotations

from functools import cache, lru_cache

from nexus.tokens.model_names import MOVING, is_bedrock, shortenings, spellings, split_window, strip_date
from nexus.tokens.model_table import ModelRow, ProviderFormat, model_rows, model_table, provider_table

REMEDY = "Give it an entry of its own to be sure."


def all_spellings(name: str) -> tuple[str, ...]:
    """Every name that a user's own entry for this model may stand under, the name as written first, undated last."""
    found = [name.strip().lower()]
    found.extend(spelling for spelling in spellings(split_window(found[0])[0]) if spelling not in found)
    while (plainer := strip_date(found[-1])) != found[-1]:
        found.append(plainer)
    return tuple(found)


@lru_cache(maxsize=1024)
def normalize_model_name(name: str) -> str:
    """The maker's own spelling of a name: no route, frame, tag or version; its date stays."""
    return spellings(split_window(name.strip().lower())[0])[-1]


def find_row(name: str) -> tuple[ModelRow | None, str]:
    """The snapshot's row for a name in small letters, and a warning if it is a guess."""
    rows, aliases = model_rows(), model_table().aliases
    found = spellings(name)
    for spelling in found:
        if row := rows.get(spelling) or rows.get(aliases.get(spelling, "").lower()):
            return row, ""
    plain, moved = found[-1], True
    while (shorter := strip_date(plain)) != plain:
        moved = moved and plain.removeprefix(shorter) in MOVING
        plain = shorter
        if row := rows.get(plain):
            return row, ""
        if row := rows.get(aliases.get(plain, "").lower()):
            # The alias is the newest snapshot: right for a moving name, a guess for one of another date.
            return row, "" if moved else _guess(name, row)
    for spelling in (found[-1], plain):
        for beginning in shortenings(spelling):
            if row := rows.get(beginning) or rows.get(aliases.get(beginning, "").lower()):
                return row, _guess(name, row)
    return None, ""


def _guess(name: str, row: ModelRow) -> str:
    return (
        f"model {name!r} is not in the snapshot of {model_table().date}; it is taken for {row.name} "
        f"({row.context:,} tokens). {REMEDY}"
    )


@cache
def _families() -> tuple[tuple[str, int], ...]:
    """All beginnings of names with the place of their family, the longest beginning first."""
    table = provider_table().families
    pairs = [(prefix, place) for place, family in enumerate(table) for prefix in family.prefixes]
    return tuple(sorted(pairs, key=lambda pair: -len(pair[0])))


def family_of(name: str) -> tuple[str, str, float]:
    """Family, vendor and tokens per base token, by the longest beginning of the plain name that is known."""
    plain = normalize_model_name(name)
    place = next(place for prefix, place in _families() if plain.startswith(prefix))
    found = provider_table().families[place]
    return found.family, found.vendor, found.token_factor


def providers_of(name: str, home: str, vendor: str) -> tuple[str, ProviderFormat]:
    """Who serves a name, and on which wire: by its route, by Bedrock's or Vertex's form, else its home provider."""
    makers: dict[str, ProviderFormat] = {"anthropic": "anthropic", "gemini": "gemini"}
    wire: ProviderFormat = makers.get(vendor, "openai")
    low = name.strip().lower()
    if is_bedrock(low) or low.startswith("arn:aws:bedrock"):
        return "bedrock", wire
    route = provider_table().routes.get(low.split("/", 1)[0]) if "/" in low else None
    if route:
        return route.provider, route.wire or wire
    if "@" in low or low.startswith("projects/"):
        return "vertex", wire
    return home or "unknown", wire
