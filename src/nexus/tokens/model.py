"""Facts about models: context windows, prices, provider formats and token factors, by name.

The facts are data (`data/models.json`, a dated snapshot, and `data/providers.json`); the user's own entries take
precedence. An unknown name is a model of 128,000 tokens with a warning, never an error: new models appear every week,
and a call should not fail for a name. Every guess is reported in `warning`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct, field

from nexus.errors import BadSetting
from nexus.tokens.counter import BASE_COUNTER
from nexus.tokens.model_names import MOVING, is_bedrock, shortenings, spellings, split_window, strip_date
from nexus.tokens.model_table import (
    CacheRules,
    ContentRates,
    Family,
    ModelRow,
    PriceRow,
    ProviderFormat,
    SettingRules,
    model_rows,
    model_table,
    provider_table,
)
from nexus.types.decoding import decodable

UNKNOWN_CONTEXT_TOKENS = 128_000
"""Context window of an unknown model."""

REMEDY = "(add an entry for it to be sure)"


class Prices(Struct, frozen=True):
    """USD per million tokens. A cache price that no source states is the plain input price: no discount is assumed."""

    input: float
    output: float
    cache_read: float
    cache_write: float
    cache_write_1h: float


class Model(Struct, frozen=True):
    """One model as a call sees it."""

    name: str
    provider: str
    """Who serves it: the route, if the name has one."""
    vendor: str
    """Who made it."""
    family: str
    provider_format: ProviderFormat = field(name="wire")
    context_tokens: int
    """Whole context window."""
    max_input_tokens: int
    """Part of the window that a prompt may fill."""
    max_output_tokens: int
    """Longest reply; 0 if unknown."""
    prices: Prices | None
    cache_min_tokens: int
    """Smallest prefix that the provider caches."""
    token_factor: float
    """The model's tokens per base token."""
    known: bool
    """False if the window is the default for unknown names."""
    matched: str
    """Name of the row of the snapshot."""
    warning: str = ""
    """Empty unless something was guessed."""
    long_prompt_tokens: int = 0
    """Input from which `long_prompt_prices` apply; 0 for never."""
    long_prompt_prices: Prices | None = None
    vision: bool = False
    tools: bool = True
    reasoning: bool = False
    content: ContentRates | None = None
    """Rates from which a prompt's own factor is estimated."""

    @property
    def initial_factor(self) -> float:
        """Start of calibration: `token_factor`, or 1 for a model whose factor is estimated by content."""
        if self.content:
            return 1.0
        return self.token_factor

    def for_counter(self, counter: str) -> Model:
        """Return the model, without its rates for content if this counter does not count base tokens."""
        if counter.startswith(BASE_COUNTER):
            return self
        return msgspec.structs.replace(self, content=None)


class ModelEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """The user's own facts about a model; fields that are not None replace the resolved ones."""

    same_as: str = ""
    """Another model's name, whose facts are the base."""
    provider: str | None = None
    provider_format: ProviderFormat | None = field(default=None, name="wire")
    context_tokens: int | None = None
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    prices: PriceRow | None = None
    cache_min_tokens: int | None = None
    token_factor: float | None = None
    vision: bool | None = None
    tools: bool | None = None
    reasoning: bool | None = None


Override: TypeAlias = Model | Mapping[str, Any]


def resolve(name: str, overrides: Mapping[str, Override] | None = None) -> Model:
    """Return the facts about the model of that name; never fails for a name.

    In order: the user's entry for the name or a plainer spelling of it; the snapshot, by the name as written, then without
    route, Bedrock frame, tag and version, then without date or moving word; the longest known beginning of the name, with
    a warning; a model of `UNKNOWN_CONTEXT_TOKENS` with `known=False` and a warning. A name that ends with `[1m]` has a
    window of a million tokens. Raises BadSetting if the user's entry has an unknown field or an impossible value.
    """
    for spelling in all_spellings(name) if overrides else ():
        for key, entry in (overrides or {}).items():
            if key.strip().lower() == spelling:
                if isinstance(entry, Model):
                    return entry
                return _overridden(name, key, entry)
    return _resolve(name)


def all_models() -> tuple[Model, ...]:
    """Return every model of the snapshot, sorted by name."""
    return tuple(_resolve(row.name) for row in sorted(model_table().models, key=lambda row: row.name.lower()))


def families() -> tuple[str, ...]:
    """Return the names of all known families, sorted."""
    return tuple(sorted({family.family for family in provider_table().families}))


def snapshot_date() -> str:
    """Return the day of the shipped snapshot, as YYYY-MM-DD."""
    return model_table().date


def retirement_date(model: Model) -> str:
    """Return the day until which the model's maker serves it, as YYYY-MM-DD; empty if unknown, or if another serves it.

    The dates of Bedrock, Vertex and other routes are their own.
    """
    row = model_rows().get(model.matched.lower())
    if row is not None and row.provider == model.provider and not model.warning:
        return row.retires
    return ""


def newest_like(model: Model) -> str:
    """Return the newest model of the snapshot with the same name except for its version; empty if it is the newest.

    `claude-opus-5-5` for `claude-opus-4-8`. Models that have an announced end, dated names and previews do not count.
    """
    name, version = _without_version(model.matched)
    newest = ""
    newest_version = version
    for row in model_table().models:
        is_plain = strip_date(row.name) == row.name and not row.retires and row.provider == model.provider
        if is_plain:
            other, other_version = _without_version(row.name)
            if other == name and other_version > newest_version:
                newest = row.name
                newest_version = other_version
    return newest


def _without_version(name: str) -> tuple[str, tuple[int, ...]]:
    """Return a name without its numbers, and the numbers: `claude-opus` and (4, 8) for `claude-opus-4-8`."""
    plain = name.lower()
    while (shorter := strip_date(plain)) != plain:
        plain = shorter
    numbers = tuple(map(int, re.findall(r"\d+", plain)))
    return re.sub(r"[-.]?\d+", "", plain), numbers


def cache_rules(model: Model, provider: str = "") -> CacheRules:
    """Return how prompts to this model are cached: by who serves it, else by who made it, else as assumed for others.

    `provider` selects the rules of one provider, whoever serves the model: for a body in its format.
    """
    table = provider_table().cache
    name = normalize_model_name(model.matched or model.name)
    for rules in table.get(provider or model.provider) or table.get(model.vendor) or table["other"]:
        if not rules.prefixes or name.startswith(rules.prefixes):
            return rules
    return table[provider or "other"][-1]


def setting_rules(model: Model) -> SettingRules:
    """Return which settings a model takes, by who made it."""
    table = provider_table().settings
    name = normalize_model_name(model.matched or model.name)
    for rules in table.get(model.vendor, table["other"]):
        if (not rules.prefixes or name.startswith(rules.prefixes)) and (model.reasoning or not rules.reasoning):
            return rules
    return table["other"][-1]


@lru_cache(maxsize=1024)
def normalize_model_name(name: str) -> str:
    """Return the maker's own spelling of a name: no route, frame, tag or version; its date stays."""
    return spellings(split_window(name.strip().lower())[0])[-1]


def all_spellings(name: str) -> tuple[str, ...]:
    """Return every key that a user's entry for this model may have: the name as written first, undated last."""
    names = [name.strip().lower()]
    names.extend(spelling for spelling in spellings(split_window(names[0])[0]) if spelling not in names)
    while (plainer := strip_date(names[-1])) != names[-1]:
        names.append(plainer)
    return tuple(names)


@lru_cache(maxsize=1024)
def family_of(name: str) -> Family:
    """Return the family of a model, by the longest known beginning of its plain name."""
    plain = normalize_model_name(name)
    families = ((prefix, family) for family in provider_table().families for prefix in family.prefixes)
    # The last family has the empty prefix, so one always matches.
    return max((pair for pair in families if plain.startswith(pair[0])), key=lambda pair: len(pair[0]))[1]


def providers_of(name: str, home: str, vendor: str) -> tuple[str, ProviderFormat]:
    """Return who serves a name and in which format: by route, by Bedrock's or Vertex's form, else its home provider."""
    formats: dict[str, ProviderFormat] = {"anthropic": "anthropic", "gemini": "gemini"}
    provider_format: ProviderFormat = formats.get(vendor, "openai")
    name = name.strip().lower()
    if is_bedrock(name) or name.startswith("arn:aws:bedrock"):
        return "bedrock", provider_format
    route = None
    if "/" in name:
        route = provider_table().routes.get(name.split("/", 1)[0])
    if route:
        return route.provider, route.provider_format or provider_format
    if "@" in name or name.startswith("projects/"):
        return "vertex", provider_format
    return home or "unknown", provider_format


@lru_cache(maxsize=1024)
def _resolve(name: str) -> Model:
    if not name.strip():
        return _model(name, None, "no model was named")
    plain, window_tokens = split_window(name.strip().lower())
    row, warning = find_row(plain)
    model = _model(name, row, warning if row else f"model {name!r} is not in the snapshot of {snapshot_date()}")
    if window_tokens:
        return msgspec.structs.replace(model, context_tokens=window_tokens, max_input_tokens=window_tokens)
    return model


def find_row(name: str) -> tuple[ModelRow | None, str]:
    """Return the snapshot's row for a lower-case name, and a warning if it is a guess."""

    def row_of(spelling: str) -> ModelRow | None:
        return rows.get(spelling) or rows.get(aliases.get(spelling, "").lower())

    def guess(row: ModelRow) -> tuple[ModelRow, str]:
        facts = f"taken for {row.name} ({row.context:,} tokens)"
        return row, f"model {name!r} is not in the snapshot of {snapshot_date()}: {facts} {REMEDY}"

    rows = model_rows()
    aliases = model_table().aliases
    names = spellings(name)
    for spelling in names:
        if row := row_of(spelling):
            return row, ""
    plain = names[-1]
    moving = True
    while (shorter := strip_date(plain)) != plain:
        moving = moving and plain.removeprefix(shorter) in MOVING
        plain = shorter
        if row := rows.get(plain):
            return row, ""
        if row := row_of(plain):
            # The alias is the newest snapshot: right for a moving name, a guess for one of another date.
            if moving:
                return (row, "")
            return guess(row)
    for spelling in (names[-1], plain):
        for beginning in shortenings(spelling):
            if row := row_of(beginning):
                return guess(row)
    return None, ""


def _model(name: str, row: ModelRow | None, warning: str) -> Model:
    """Return the facts of a row, or the defaults for a name without one; `warning` describes the guess."""
    family = family_of(name)
    vendor = family.vendor
    provider, provider_format = providers_of(name, row.provider if row else vendor, vendor)
    rules = provider_table().cache
    # A guess may have the window of its model; its price is another matter.
    priced = None if warning else row
    long_prompt = priced.long_prompt if priced else None
    unknown = f"{warning}: {UNKNOWN_CONTEXT_TOKENS:,} tokens assumed {REMEDY}"
    return Model(
        name=name,
        provider=provider,
        vendor=vendor,
        family=family.family,
        provider_format=provider_format,
        context_tokens=row.context if row else UNKNOWN_CONTEXT_TOKENS,
        max_input_tokens=row.max_input if row else UNKNOWN_CONTEXT_TOKENS,
        max_output_tokens=row.max_output if row else 0,
        prices=_prices(priced.price) if priced else None,
        cache_min_tokens=(row.cache_min if row else 0)
        or (rules.get(provider) or rules.get(vendor) or rules["other"])[0].min_tokens,
        token_factor=family.token_factor,
        known=row is not None,
        matched=row.name if row else "",
        warning=warning if row else unknown,
        long_prompt_tokens=long_prompt.from_tokens if long_prompt else 0,
        long_prompt_prices=_prices(long_prompt),
        vision=row is not None and "vision" in row.flags,
        tools=row is None or "tools" in row.flags,
        reasoning=row is not None and "reasoning" in row.flags,
        content=family.content,
    )


def _prices(row: PriceRow | None) -> Prices | None:
    if row is None:
        return None
    read = row.input if row.cache_read is None else row.cache_read
    if row.cache_write is None:
        write = row.input
    else:
        write = row.cache_write
    return Prices(row.input, row.output, read, write, write if row.cache_write_1h is None else row.cache_write_1h)


def _overridden(name: str, key: str, values: Mapping[str, Any]) -> Model:
    """Return the resolved model with the user's entry over it."""
    try:
        entry = msgspec.convert(dict(values), decodable(ModelEntry))
    except msgspec.ValidationError as error:
        raise BadSetting(f"entry for model {key!r} invalid: {error}", code="bad_model_entry") from error
    sizes = (entry.context_tokens, entry.max_input_tokens, entry.token_factor)
    if any(size is not None and size <= 0 for size in sizes) or (entry.max_output_tokens or 0) < 0:
        raise BadSetting(
            f"entry for model {key!r} invalid: a size is not above zero in {dict(values)!r}", code="bad_model_entry"
        )
    base = _resolve(entry.same_as or name)
    context = entry.context_tokens or base.context_tokens
    # A prompt may fill the whole window unless the model, or the entry, says otherwise.
    fills_window = base.max_input_tokens == base.context_tokens
    max_input = entry.max_input_tokens or (context if fills_window else min(base.max_input_tokens, context))
    if max_input > context:
        raise BadSetting(
            f"entry for model {key!r} invalid: {max_input:,} tokens of input in a window of {context:,}",
            code="bad_model_entry",
        )
    handled = ("same_as", "context_tokens", "max_input_tokens", "prices")
    changes: dict[str, Any] = {
        field: value
        for field, value in msgspec.structs.asdict(entry).items()
        if field not in handled and value is not None
    }
    if entry.prices:
        changes |= {"prices": _prices(entry.prices), "long_prompt_prices": None, "long_prompt_tokens": 0}
    if entry.token_factor is not None:
        changes["content"] = None
    is_known = entry.context_tokens is not None or base.known
    return msgspec.structs.replace(
        base,
        name=name,
        context_tokens=context,
        max_input_tokens=max_input,
        known=is_known,
        matched=base.matched or key,
        warning="" if is_known else base.warning,
        **changes,
    )
