"""What a model can hold and what it costs: names resolved to facts.

The facts are data (`data/models.json`, a dated snapshot; `data/providers.json`), the user's own entry wins over both,
and a name that nobody knows is a model of 128,000 tokens with a warning, never an error: new models appear every week
and a call should not fail for a name. Wherever a guess is made, the value says so in `warning`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from nexus.errors import BadModelEntry
from nexus.tokens.model_lookup import REMEDY, all_spellings, family_of, find_row, normalize_model_name, providers_of
from nexus.tokens.model_names import split_window
from nexus.tokens.model_table import CacheRules, ModelRow, PriceRow, ProviderFormat, model_table, provider_table

UNKNOWN_CONTEXT_TOKENS = 128_000
"""The window of a model that nobody knows (document 002)."""


class Prices(Struct, frozen=True):
    """USD per million tokens. A cache price that no source states is the plain input price: no discount is assumed."""

    input: float
    output: float
    cache_read: float
    cache_write: float
    cache_write_1h: float


class Model(Struct, frozen=True):
    """One model as a call sees it.

    `provider` serves it (the route, if the name has one), `vendor` made it, `family` names its line. `context_tokens`
    is the whole window, `max_input_tokens` what a prompt may fill of it, `max_output_tokens` the longest reply (0 if
    unknown). `token_factor` is the model's tokens per base token. `known` is false when the window is the default for
    unknown names; `matched` is the snapshot's name that was found; `warning` is empty unless something was guessed.
    `prices` is None when unknown; from `long_prompt_tokens` of input on (0: never) `long_prompt_prices` hold.
    """

    name: str
    provider: str
    vendor: str
    family: str
    wire: ProviderFormat
    context_tokens: int
    max_input_tokens: int
    max_output_tokens: int
    prices: Prices | None
    cache_min_tokens: int
    token_factor: float
    known: bool
    matched: str
    warning: str = ""
    long_prompt_tokens: int = 0
    long_prompt_prices: Prices | None = None
    vision: bool = False
    tools: bool = True
    reasoning: bool = False


class ModelEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """The user's own facts about a model: what is given replaces what would be found; `same_as` names another model."""

    same_as: str = ""
    provider: str | None = None
    wire: ProviderFormat | None = None
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
    """The facts about the model of that name; never fails for a name, whatever it is.

    In order: the user's entry (for the name or any plainer spelling of it); the snapshot, by the name as written, then
    without route, Bedrock frame, tag and version, then without date or moving word; the longest known beginning of the
    name, with a warning; a model of `UNKNOWN_CONTEXT_TOKENS` with `known=False` and a warning. A name that ends with
    `[1m]` has a window of a million tokens. Raises BadModelEntry if the user's entry has an unknown field or a bad value.
    """
    for spelling in all_spellings(name) if overrides else ():
        for key, entry in (overrides or {}).items():
            if key.strip().lower() == spelling:
                return entry if isinstance(entry, Model) else _overridden(name, key, entry)
    return _resolve(name)


def all_models() -> tuple[Model, ...]:
    """Every model of the snapshot, sorted by name."""
    return tuple(_resolve(row.name) for row in sorted(model_table().models, key=lambda row: row.name.lower()))


def families() -> tuple[str, ...]:
    """The names of all families that the snapshot knows, sorted."""
    return tuple(sorted({family.family for family in provider_table().families}))


def snapshot_date() -> str:
    """The day of the shipped snapshot, as YYYY-MM-DD."""
    return model_table().date


def cache_rules(model: Model, provider: str = "") -> CacheRules:
    """How prompts to this model are cached: by who serves it, else by who made it, else as assumed for others.

    With `provider` the rules of that one, whoever serves the model: for a body in its form.
    """
    table = provider_table().cache
    name = normalize_model_name(model.matched or model.name)
    for rules in table.get(provider or model.provider) or table.get(model.vendor) or table["other"]:
        if not rules.prefixes or name.startswith(rules.prefixes):
            return rules
    return table[provider or "other"][-1]


@lru_cache(maxsize=1024)
def _resolve(name: str) -> Model:
    if not name.strip():
        return _unknown(name, "no model was named")
    wanted, asked_tokens = split_window(name.strip().lower())
    row, warning = find_row(wanted)
    if row is None:
        model = _unknown(name, f"model {name!r} is not in the snapshot of {snapshot_date()}")
    else:
        model = _from_row(name, row, warning)
    if asked_tokens:
        replaced = {"context_tokens": asked_tokens, "max_input_tokens": asked_tokens}
        model = msgspec.structs.replace(model, **replaced)
    return model


def _from_row(name: str, row: ModelRow, warning: str) -> Model:
    family, vendor, factor = family_of(name)
    provider, wire = providers_of(name, row.provider, vendor)
    rules = provider_table().cache
    least = row.cache_min or (rules.get(provider) or rules.get(vendor) or rules["other"])[0].min_tokens
    long_prompt = None if warning else row.long_prompt
    return Model(
        name=name,
        provider=provider,
        vendor=vendor,
        family=family,
        wire=wire,
        context_tokens=row.context,
        max_input_tokens=row.max_input,
        max_output_tokens=row.max_output,
        # A guess may have the window of its model; its price is another matter.
        prices=None if warning else _prices(row.price),
        cache_min_tokens=least,
        token_factor=factor,
        known=True,
        matched=row.name,
        warning=warning,
        long_prompt_tokens=long_prompt.from_tokens if long_prompt else 0,
        long_prompt_prices=_prices(long_prompt),
        vision="vision" in row.flags,
        tools="tools" in row.flags,
        reasoning="reasoning" in row.flags,
    )


def _unknown(name: str, reason: str) -> Model:
    family, vendor, factor = family_of(name)
    provider, wire = providers_of(name, vendor, vendor)
    rules = provider_table().cache
    return Model(
        name=name,
        provider=provider,
        vendor=vendor,
        family=family,
        wire=wire,
        context_tokens=UNKNOWN_CONTEXT_TOKENS,
        max_input_tokens=UNKNOWN_CONTEXT_TOKENS,
        max_output_tokens=0,
        prices=None,
        cache_min_tokens=(rules.get(provider) or rules.get(vendor) or rules["other"])[0].min_tokens,
        token_factor=factor,
        known=False,
        matched="",
        warning=f"{reason}: a window of {UNKNOWN_CONTEXT_TOKENS:,} tokens is assumed. {REMEDY}",
    )


def _prices(row: PriceRow | None) -> Prices | None:
    if row is None:
        return None
    read = row.input if row.cache_read is None else row.cache_read
    write = row.input if row.cache_write is None else row.cache_write
    return Prices(row.input, row.output, read, write, write if row.cache_write_1h is None else row.cache_write_1h)


def _overridden(name: str, key: str, given: Mapping[str, Any]) -> Model:
    """The resolved model with the user's entry over it."""
    try:
        entry = msgspec.convert(dict(given), ModelEntry)
    except msgspec.ValidationError as error:
        raise BadModelEntry(f"the entry for model {key!r} cannot be read: {error}") from error
    numbers = (entry.context_tokens, entry.max_input_tokens, entry.token_factor)
    if any(number is not None and number <= 0 for number in numbers) or (entry.max_output_tokens or 0) < 0:
        raise BadModelEntry(f"the entry for model {key!r} has a size that is not above zero: {dict(given)!r}")
    base = _resolve(entry.same_as or name)
    context = entry.context_tokens or base.context_tokens
    # A prompt may fill the whole window unless the model, or the entry, says otherwise.
    whole = base.max_input_tokens == base.context_tokens
    most = entry.max_input_tokens or (context if whole else min(base.max_input_tokens, context))
    if most > context:
        raise BadModelEntry(f"the entry for model {key!r} allows {most:,} tokens of input in a window of {context:,}")
    fields = msgspec.structs.asdict(entry)
    settled = ("same_as", "context_tokens", "max_input_tokens", "prices")
    changed: dict[str, Any] = {
        field: value for field, value in fields.items() if field not in settled and value is not None
    }
    if entry.prices:
        changed |= {"prices": _prices(entry.prices), "long_prompt_prices": None, "long_prompt_tokens": 0}
    sized = entry.context_tokens is not None or base.known
    return msgspec.structs.replace(
        base,
        name=name,
        context_tokens=context,
        max_input_tokens=most,
        known=sized,
        matched=base.matched or key,
        warning="" if sized else base.warning,
        **changed,
    )
