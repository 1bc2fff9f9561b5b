"""Spellings of model names: rules that reduce a name to the maker's own.

Routes add prefixes (`openrouter/anthropic/…`), Bedrock a region, a maker and a version (`us.anthropic.…-v1:0`), Vertex a
date after `@`, makers a date or a moving word (`-20250514`, `-latest`). Each rule is a function from a name to a shorter
or plainer one; their order is data. The forms are the documented model ids of the routes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache

_DATED = tuple(re.compile(rf"(.+?){end}") for end in (
    r"-20\d{6}",  # claude-sonnet-4-20250514
    r"-20\d\d-\d\d-\d\d",  # gpt-4.1-2025-04-14
    r"-\d\d-20\d\d",  # command-a-03-2025
    r"-\d\d-\d\d",  # gemini-2.5-pro-preview-05-06
    r"-\d{4}",  # mistral-large-2411, gpt-4-0613
))  # fmt: skip
MOVING = ("-latest", "-0", "-preview", "-exp", "-default", "-maas", "-001", "-002")
_BEDROCK = re.compile(
    r"(?:(?:us|eu|apac|ap|au|jp|ca|sa|us-gov|global)\.)?"
    r"(?P<maker>amazon|anthropic|cohere|deepseek|google|meta|minimax|mistral|moonshot|moonshotai|openai|qwen|xai|zai)"
    r"\.(?P<model>[a-z].*)"
)
_SIZED = re.compile(r"(?P<name>.+)\[(?P<millions>\d+)m\]")


def strip_date(name: str) -> str:
    """Return the name without one date or moving word at its end, if it has one."""
    for pattern in _DATED:
        if match := pattern.fullmatch(name):
            return match[1]
    return next((name.removesuffix(suffix) for suffix in MOVING if name.endswith(suffix)), name)


def split_window(name: str) -> tuple[str, int]:
    """Return the name, and the window in tokens that it asks for: 1,000,000 for `claude-opus-4-8[1m]`, 0 for none."""
    match = _SIZED.fullmatch(name)
    if match:
        return (match["name"], int(match["millions"]) * 1_000_000)
    return (name, 0)


def is_bedrock(name: str) -> bool:
    """Return True if the last part of the name is in Bedrock's form (`eu.anthropic.claude-…`, `meta.llama3-…`)."""
    return _BEDROCK.fullmatch(name.rsplit("/", 1)[-1]) is not None


def _without_bedrock(name: str) -> str:
    match = _BEDROCK.fullmatch(name)
    if not match:
        return name
    # Bedrock's `deepseek.r1` repeats no maker; every other maker's model names begin with their own name.
    if match["maker"] == "deepseek":
        return f"deepseek-{match['model']}"
    return match["model"]


def _without_version(name: str) -> str:
    return re.sub(r"-v?\d+:\d+(?::\d+k)?$", "", re.sub(r"^(claude-.+|nova-.+)-v\d+$", r"\1", name))


def _without_tuning(name: str) -> str:
    parts = name.split(":")
    if parts[0] == "ft":
        return ":".join(parts[:2])
    return name


def _without_tag(name: str) -> str:
    if name.startswith("ft:"):
        return name
    return name.split(":", 1)[0]


def _claude(name: str) -> str:
    """Return Anthropic's own spelling: `claude-4.5-opus` and `claude-opus-4.5` are `claude-opus-4-5`."""
    if not name.startswith("claude-"):
        return name
    name = re.sub(r"(?<=\d)\.(?=\d)", "-", name)
    return re.sub(r"^claude-([4-9](?:-\d)?)-([a-z]+)(?=-|$)", r"claude-\2-\1", name)


def _llama(name: str) -> str:
    """Return Meta's spelling: `llama3-1-8b-instruct` and `meta-llama-3.1-8b-instruct` are `llama-3.1-8b-instruct`."""
    return re.sub(r"^(?:meta-)?llama-?(\d)[-.](\d)(?=-)", r"llama-\1.\2", name)


_RULES: tuple[Callable[[str], str], ...] = (
    _without_bedrock,
    _without_version,
    _without_tuning,
    lambda name: name.removeprefix("ft:"),  # the base of a fine-tuned model
    _without_tag,
    lambda name: name.replace("@", "-"),
    _claude,
    _llama,
)


def spellings(name: str) -> tuple[str, ...]:
    """Return the lower-case names to look up for one name: as written first, then with ever fewer prefixes and frames.

    Dates stay: `strip_date` removes them, one at a time, if none of these names is known.
    """
    names = [name.strip().lower()]
    while "/" in names[-1]:
        names.append(names[-1].split("/", 1)[1])
    for rule in _RULES:
        if (plainer := rule(names[-1])) != names[-1]:
            names.append(plainer)
    return tuple(names)


def shortenings(name: str) -> Iterator[str]:
    """Yield the name cut at each `-`, `.`, `:` or `_` from its end: models that an unknown name may be a variant of."""
    for match in reversed(list(re.finditer(r"[-.:_]", name))):
        yield name[: match.start()]


@lru_cache(maxsize=512)
def base_model_name(name: str) -> str:
    """Return the name without route, frame, version and date, which all names of one model have in common."""
    plain = spellings(split_window(name.strip().lower())[0])[-1].rsplit("/", 1)[-1]
    while (shorter := strip_date(plain)) != plain:
        plain = shorter
    return plain


def same_model(name: str, other: str) -> bool:
    """Return True if both names mean one model, so that signatures made under one are accepted under the other."""
    return bool(name) and base_model_name(name) == base_model_name(other)
