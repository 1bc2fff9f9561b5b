"""Redaction of secrets before a summarizer or a log reads the text: each becomes `[secret: kind]`.

The patterns are the documented formats of keys. No library fits: detect-secrets reads files line by line, brings an HTTP
client and has had no release since May 2024, and the smaller ones also remove paths, hosts and addresses, which a summary
has to keep. A password in prose without any cue is not found.
"""

from __future__ import annotations

import re
from collections import Counter

from msgspec import Struct

_W = r"[A-Za-z0-9_-]"
_PATTERNS: tuple[tuple[str, str, str], ...] = (
    # kind, a text that every match contains (checked first, for speed), pattern
    (
        "private key",
        "PRIVATE KEY",
        (
            r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,4}PRIVATE KEY(?: BLOCK)?-----"
            r"(?:[A-Za-z0-9+/=\s\\:,.()]|-(?!--))*+(?:-----END [A-Z0-9 ]{1,60}-----)?"
        ),
    ),
    ("anthropic key", "sk-ant-", rf"(?<!\w)sk-ant-{_W}{{16,}}"),
    ("openai key", "sk-", rf"(?<![\w-])sk-(?:proj-|svcacct-|admin-|or-v1-|None-)?{_W}{{20,}}"),
    ("aws key", "A", r"(?<![A-Za-z0-9])(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    ("github token", "gh", r"(?<!\w)gh[pousr]_[A-Za-z0-9]{30,}"),
    ("github token", "github_pat_", r"(?<!\w)github_pat_[A-Za-z0-9_]{22,}"),
    ("gitlab token", "glpat-", rf"(?<!\w)glpat-{_W}{{18,}}"),
    ("google key", "AIza", rf"(?<!\w)AIza{_W}{{35}}"),
    ("google token", "ya29.", rf"(?<!\w)ya29\.{_W}{{20,}}"),
    ("google key", "GOCSPX-", rf"(?<!\w)GOCSPX-{_W}{{20,}}"),
    ("slack token", "xox", r"(?<!\w)xox[abeoprs]-[A-Za-z0-9-]{10,}"),
    ("slack token", "xapp-", r"(?<!\w)xapp-[A-Za-z0-9-]{10,}"),
    ("slack webhook", "hooks.slack.com", r"https://hooks\.slack\.com/(?:services|workflows)/[A-Za-z0-9/_-]{10,}"),
    ("stripe key", "_", r"(?<!\w)(?:[sr]k_(?:live|test)_|whsec_)[A-Za-z0-9]{16,}"),
    ("npm token", "npm_", r"(?<!\w)npm_[A-Za-z0-9]{30,}"),
    ("pypi token", "pypi-", rf"(?<!\w)pypi-AgE{_W}{{40,}}"),
    ("hugging face token", "hf_", r"(?<!\w)hf_[A-Za-z0-9]{30,}"),
    ("groq key", "gsk_", r"(?<!\w)gsk_[A-Za-z0-9]{30,}"),
    ("xai key", "xai-", r"(?<!\w)xai-[A-Za-z0-9]{30,}"),
    ("sendgrid key", "SG.", rf"(?<!\w)SG\.{_W}{{16,}}\.{_W}{{16,}}"),
    ("telegram token", ":AA", rf"(?<!\d)\d{{8,10}}:AA{_W}{{33}}"),
    ("jwt", "eyJ", rf"(?<!\w)eyJ{_W}{{8,}}\.{_W}{{8,}}(?:\.{_W}+)?"),
)
_PREFIXED_PATTERNS: tuple[tuple[str, str, str], ...] = (
    # group 1 stays, group 2 is the secret
    ("bearer token", "bearer", r"(?i)(?<!\w)(bearer[ \t]{1,3})((?=[^\d\s]{0,64}\d)[A-Za-z0-9_.~+/=-]{16,})"),
    (
        "basic login",
        "basic",
        r"(?i)(authorization[\"']?[ \t]{0,3}[:=][ \t]{0,3}[\"']?basic[ \t]{1,3})([A-Za-z0-9_+/=-]{6,})",
    ),
    ("password", "://", r"(://[^\s/:@\"'<>]{0,128}:)([^\s/@\"'<>]{1,256})(?=@)"),
    ("signature", "sig", r"(?i)([?&](?:sig|x-amz-signature|x-goog-signature)=)([^\s&#\"'<>]{8,})"),
    ("cookie", "cookie", r"(?i)((?<!\w)(?:set-)?cookie[ \t]{0,3}:[ \t]{0,3})([^\s'\"=]{1,64}=[^\r\n'\"]{4,})"),
)
_ASSIGNED = re.compile(
    r"(?i)(?<!\[)(?:passwords?|passwd|passphrase|passwort|mot de passe|contraseña|密码|密钥|口令|pwd|secret|token|api[_-]?key|access[_-]?key|account[_-]?key|"
    r"secret[_-]?key|signing[_-]?key|encryption[_-]?key|private[_-]?key|credentials?)(?P<tail>(?:[_-]?[A-Za-z0-9]{1,16}){0,2}?)"
    r"(?P<sign>[\"'`]?[ \t]{0,3}(?::=|=>|=|:|：)[ \t]{0,3}|[ \t]{1,3}(?:is|ist|es|est)[ \t]{1,3}|(?:是|为)[ \t]{0,3})"
    r"(?:(?P<quote>\\?[\"'`])(?P<quoted>[^\"'`\r\n\\]{1,256})|(?P<bare>[^\s\"'`,;<>(){}\[\]]{1,256}))"
)
_FLAG = re.compile(
    r"(?i)(?<![\w-])(--?(?:password|passwd|token|secret|api-key|access-token)[ \t]{1,3})([^\s\"'`-][^\s\"'`]{3,255})"
)
_ASSIGNED_HINTS = ("pass", "pwd", "secret", "token", "key", "credential", "contraseña", "密码", "密钥", "口令")
_NO_SECRET_NAME = re.compile(
    r"(?i)\A(?:s|ize[rd]?|izers?|ary|[_-]?(?:count|limit|length|size|type|name|file|path|url|uri|ttl|expiry|expires|field|id|"
    r"budget|usage|per|dir|manager|store|ref|policy|hash[_-]?algorithm)(?:[_-].*|s?))\Z"
)
_NO_SECRET_VALUE = re.compile(
    r"(?i)\A(?:\$|%|\*+|x{3,}\Z|\.{2,}|<|/[\w.-]+/|~/|\./|none\b|null\b|nil\b|true\b|false\b|undefined\b|required\b|"
    r"(?:str|string|int|bool|optional|any)\b|os\.|process\.|env\b|env[.(]|self\.|config[.(]|settings\.|get_?\w*\(|"
    r"your[_-]|my[_-]|example|changeme\Z|redacted|\[?secret:)"
)
_COMPILED = tuple((kind, hint, re.compile(pattern)) for kind, hint, pattern in _PATTERNS)
_COMPILED_PREFIXED = tuple((kind, hint, re.compile(pattern)) for kind, hint, pattern in _PREFIXED_PATTERNS)


class RedactedText(Struct, frozen=True):
    """A text without its secrets, and the number of removed secrets by kind."""

    text: str
    counts: dict[str, int]


def redact(text: str) -> RedactedText:
    """Replace every recognizable secret by `[secret: kind]`. Idempotent; time is linear in the length.

    Covers private keys, keys and tokens of well-known services, JWTs, bearer and basic headers, cookies, signed links,
    passwords in URLs, flags and assignments (`PASSWORD=…`, `"api_key": "…"`).
    """
    counts: Counter[str] = Counter()

    def placeholder(kind: str) -> str:
        counts[kind] += 1
        return f"[secret: {kind}]"

    def after_prefix(match: re.Match[str], kind: str) -> str:
        if "[secret:" in match[2] or _NO_SECRET_VALUE.match(match[2]):
            return match[0]
        return match[1] + placeholder(kind)

    def assignment(match: re.Match[str]) -> str:
        if not _assigns_secret(match):
            return match[0]
        kind = "password" if match[0][:4].lower() in ("pass", "pwd=", "pwd:") else "credential"
        return match[0].removesuffix(match["quoted"] or match["bare"]) + placeholder(kind)

    for kind, hint, pattern in _COMPILED:
        if hint in text:
            text = pattern.sub(lambda _, kind=kind: placeholder(kind), text)
    lowered = text.lower()
    for kind, hint, pattern in _COMPILED_PREFIXED:
        if hint in lowered:
            text = pattern.sub(lambda match, kind=kind: after_prefix(match, kind), text)
    if any(hint in lowered for hint in _ASSIGNED_HINTS):
        text = _ASSIGNED.sub(assignment, text)
        text = _FLAG.sub(lambda match: after_prefix(match, "password"), text)
    return RedactedText(text, dict(sorted(counts.items())))


def _assigns_secret(match: re.Match[str]) -> bool:
    """Return False if the name or the value of an assignment shows that it is not a secret."""
    value, quoted, assigned = match["quoted"] or match["bare"], match["quoted"], "=" in match["sign"]
    if _NO_SECRET_NAME.match(match["tail"]) or _NO_SECRET_VALUE.match(value) or len(value.strip()) < 3:
        return False
    if assigned:
        return True
    # After a colon or "is", plain words are prose: "the password is required", "token: see below".
    if quoted:
        return not (" " in value.strip() and value.replace(" ", "").isalpha())
    return not (value.isalpha() or value.isspace() or value.rstrip(".,;:!?").isalpha())
