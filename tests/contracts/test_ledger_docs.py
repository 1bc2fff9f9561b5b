"""The schema in the docs is the one that the migrations make."""

from __future__ import annotations

import sys

from contracts.modules import ROOT

sys.path.insert(0, str(ROOT / "scripts"))

import build_ledger_docs


def test_the_docs_have_the_schema_as_it_is() -> None:
    text = build_ledger_docs.PAGE.read_text("utf-8")
    assert build_ledger_docs.page(text) == text, "run: python scripts/build_ledger_docs.py"


def test_every_table_and_column_is_described() -> None:
    assert build_ledger_docs.schema().count("### ") == len(build_ledger_docs.TABLES)
