"""Redaction: no secret of a known form gets through, ordinary text comes back as it was."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nexus.text.redact import redact

LETTERS = "aB3dE5gH7jK9mN1pQ2sT4vW6xY8zA0cD"
LONG = LETTERS * 3
PLANTED = {
    "private key": "-----BEGIN " + "RSA PRIVATE KEY-----\nMIIEow" + LONG + "\n-----END RSA PRIVATE KEY-----",
    "anthropic key": "sk-ant-" + "api03-" + LONG,
    "openai key": "sk-" + "proj-" + LONG[:48],
    "aws key": "AKIA" + "IOSFODNN7EXAMPL3",
    "github token": "ghp_" + LONG[:36],
    "gitlab token": "glpat-" + LONG[:20],
    "google key": "AIza" + LONG[:35],
    "google token": "ya29." + LONG[:40],
    "slack token": "xoxb-" + "1234567890-" + LONG[:24],
    "stripe key": "sk_" + "live_" + LONG[:24],
    "npm token": "npm_" + LONG[:36],
    "hugging face token": "hf_" + LONG[:34],
    "jwt": "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0In0." + LONG[:32],
}
IN_CONTEXT = {
    "bearer token": ("Authorization: Bearer {}", LONG[:40]),
    "basic login": ("-H 'Authorization: Basic {}'", "dXNlcjpwYXNzd29yZA=="),
    "password": ("postgres://admin:{}@db.internal:5432/app", "h8nter2"),
    "cookie": ("Cookie: {}", "session=" + LONG[:20]),
    "signature": ("https://x.blob/y?sv=1&sig={}", LONG[:30]),
}
ASSIGNED = [
    "PASSWORD={}", "export DB_PASSWORD='{}'", 'api_key: "{}"', '{{"client_secret": "{}"}}', "aws_secret_access_key = {}",
    "--password {}", "the password is {}", "ACCESS_TOKEN={}", "密码是 {}",
]  # fmt: skip
AROUND = st.text(alphabet=" \n.,;:()abc中", max_size=12)


@pytest.mark.parametrize("kind", sorted(PLANTED))
@settings(max_examples=8, deadline=None)
@given(AROUND, AROUND)
def test_key_of_known_format_is_redacted_anywhere(kind: str, before: str, after: str) -> None:
    told = redact(f"{before} {PLANTED[kind]} {after}")
    assert PLANTED[kind] not in told.text and LONG[:20] not in told.text
    assert told.text == f"{before} [secret: {kind}] {after}"
    assert told.counts == {kind: 1}


@pytest.mark.parametrize("kind", sorted(IN_CONTEXT))
def test_secret_is_redacted_by_its_prefix(kind: str) -> None:
    frame, secret = IN_CONTEXT[kind]
    told = redact(frame.format(secret))
    assert told.text == frame.format(f"[secret: {kind}]") and told.counts == {kind: 1}


@pytest.mark.parametrize("frame", ASSIGNED)
def test_assignment_to_secret_name_is_redacted(frame: str) -> None:
    told = redact(frame.format("Tr0ub4dor-3x"))
    assert "Tr0ub4dor" not in told.text and sum(told.counts.values()) == 1


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens: 4096", "token_count=500", "the password is required", "password=${DB_PASSWORD}", "token: str",
        'api_key = os.environ["KEY"]', "tokenizer=fast", "secret santa: tomorrow", "primary_key=user_id", "pwd: /home/you",
        "Never log passwords.", "see sk-learn and task-1234", "basic understanding of headers", "access_token_ttl=3600",
        "9f2c0de4b1a7 is the commit, 123e4567-e89b-12d3-a456-426614174000 the run", "https://example.com:8080/a@b",
    ],
)  # fmt: skip
def test_text_without_secret_is_unchanged(text: str) -> None:
    assert redact(text).text == text and redact(text).counts == {}


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.sampled_from([*PLANTED.values(), *(frame.format("x9Kq-77z") for frame in ASSIGNED), "\ud800", "\x00"])
        | AROUND
    )
)
def test_redact_is_idempotent(pieces: list[str]) -> None:
    once = redact(" ".join(pieces)).text
    assert redact(once).text == once


def test_private_key_without_end_is_redacted_to_end_of_data() -> None:
    told = redact("-----BEGIN OPENSSH " + "PRIVATE KEY-----\nb3BlbnNzaC1rZXk\nAAAA\n\n## Next")
    assert "b3Blbn" not in told.text and told.text.endswith("## Next")


@pytest.mark.parametrize(
    "piece", ["a", "sk-", "password=", "-----BEGIN " + "PRIVATE KEY-----", "eyJ", "://", "bearer "]
)
def test_redact_takes_linear_time_on_a_megabyte_of_prefixes(piece: str) -> None:
    told = redact(piece * (1_000_000 // len(piece)))
    assert redact(told.text).text == told.text
