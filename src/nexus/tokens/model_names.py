"""Names of models: one model is called many things, and these rules take a name apart.

Routes put prefixes before it (`openrouter/anthropic/…`), Bedrock a region, a maker and a version
(`us.anthropic.…-v1:0`), Vertex a date after `@`, makers a date or a moving word (`-20250514`, `-latest`). Each rule is
a plain function from a name to a shorter or plainer one, and their order is data. The forms are those that the routes
document for their model ids.
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
    """The name without one date or moving word at its end; the name itself if it ends with neither."""
    for pattern in _DATED:
        if match := pattern.fullmatch(name):
            return match[1]
    return next((name.removesuffix(word) for word in MOVING if name.endswith(word)), name)


def split_window(name: str) -> tuple[str, int]:
    """The name, and the window in tokens that it asks for: 1,000,000 for `claude-sonnet-4-5[1m]`, 0 for none."""
    match = _SIZED.fullmatch(name)
    return (match["name"], int(match["millions"]) * 1_000_000) if match else (name, 0)


def is_bedrock(name: str) -> bool:
    """Whether the last part of the name is in Bedrock's form (`eu.anthropic.claude-…`, `meta.llama3-…`)."""
    return _BEDROCK.fullmatch(name.rsplit("/", 1)[-1]) is not None


def _without_bedrock(name: str) -> str:
    match = _BEDROCK.fullmatch(name)
    if not match:
        return name
    # Bedrock's `deepseek.r1` repeats no maker; every other maker's model names begin with their own name.
    return f"deepseek-{match['model']}" if match["maker"] == "deepseek" else match["model"]


def _without_version(name: str) -> str:
    return re.sub(r"-v?\d+:\d+(?::\d+k)?$", "", re.sub(r"^(claude-.+|nova-.+)-v\d+$", r"\1", name))


def _without_tuning(name: str) -> str:
    parts = name.split(":")
    return ":".join(parts[:2]) if parts[0] == "ft" else name


def _base_of_tuning(name: str) -> str:
    return name.removeprefix("ft:")


def _without_tag(name: str) -> str:
    return name if name.startswith("ft:") else name.split(":", 1)[0]


def _plain_at(name: str) -> str:
    return name.replace("@", "-")


def _claude(name: str) -> str:
    """Anthropic's own spelling: `claude-4.5-sonnet` and `claude-sonnet-4.5` are `claude-sonnet-4-5`."""
    if not name.startswith("claude-"):
        return name
    name = re.sub(r"(?<=\d)\.(?=\d)", "-", name)
    return re.sub(r"^claude-([4-9](?:-\d)?)-([a-z]+)(?=-|$)", r"claude-\2-\1", name)


def _llama(name: str) -> str:
    """Meta's spelling with a dot: `llama3-1-8b-instruct`, `meta-llama-3.1-8b-instruct` are `llama-3.1-8b-instruct`."""
    return re.sub(r"^(?:meta-)?llama-?(\d)[-.](\d)(?=-)", r"llama-\1.\2", name)


_RULES: tuple[Callable[[str], str], ...] = (
    _without_bedrock,
    _without_version,
    _without_tuning,
    _base_of_tuning,
    _without_tag,
    _plain_at,
    _claude,
    _llama,
)


def spellings(name: str) -> tuple[str, ...]:
    """The names to look up for one name, in small letters: as written first, then with ever fewer prefixes and frames.

    Dates stay: `undated` takes them off, one at a time, when none of these is known.
    """
    found = [name.strip().lower()]
    while "/" in found[-1]:
        found.append(found[-1].split("/", 1)[1])
    for rule in _RULES:
        if (plainer := rule(found[-1])) != found[-1]:
            found.append(plainer)
    return tuple(found)


def shortenings(name: str) -> Iterator[str]:
    """The name cut at each `-`, `.`, `:` or `_` from its end: what a name that nobody knows may be a variant of."""
    for match in reversed(list(re.finditer(r"[-.:_]", name))):
        yield name[: match.start()]


@lru_cache(maxsize=512)
def base_model_name(name: str) -> str:
    """The name without route, frame, version and date: what two names of one model have in common."""
    plain = [*spellings(split_window(name.strip().lower())[0])][-1].rsplit("/", 1)[-1]
    while (shorter := strip_date(plain)) != plain:
        plain = shorter
    return plain


def same_model(one: str, other: str) -> bool:
    """Whether both names mean the same model, so that signatures made by the one are accepted by the other."""
    return bool(one) and base_model_name(one) == base_model_name(other)
