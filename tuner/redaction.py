"""Owns telling secrets by their names, and hiding them in what people read: URLs, study texts."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

HIDDEN = "***"

_NAME = (  # from a word's first letter only: else a long word costs its length squared
    r"(?<![\w.-])[\w.-]*(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?"
    r"|(?:API|ACCESS|AUTH|PRIVATE|SIGNING|ENCRYPTION)[_-]?KEY)(?:_ID)?"
)
_SECRET_NAME = re.compile(_NAME, re.IGNORECASE)
# Tokens that are pieces of text, not of trust: eos-token, mask_token.
_TEXT_TOKEN = re.compile(
    r"(?:.*[_.-])?(?:bos|eos|pad|unk|sep|cls|mask|stop|image|think|per)[_.-]token", re.IGNORECASE
)
_PAIR = re.compile(
    rf"""(?<![\w.-])(?P<key>["']?({_NAME})["']?\s*[:=]\s*)"""
    r"""(?P<value>"(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^\s,}#][^,}#\n]*)""",
    re.I | re.S,
)
_URL = re.compile(r"(?P<head>(?<![\w+.-])[\w+.-]+://[^/\s:@]*):(?P<secret>[^@/\s]+)@")


def is_secret(name: str) -> bool:
    """True for names such as HF_TOKEN or api-key; not for max_tokens or eos-token."""
    return _SECRET_NAME.fullmatch(name) is not None and _TEXT_TOKEN.fullmatch(name) is None


def without_secrets(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values whose names tell no secret."""
    return {name: value for name, value in values.items() if not is_secret(name)}


def secret_values(environ: Mapping[str, str], least: int = 8) -> list[str]:
    """Values of secret names that are long enough to be looked for in a text."""
    found = {value for name, value in environ.items() if is_secret(name)}
    return sorted(value for value in found if len(value) >= least)


def hide_value(name: str, value: Any) -> Any:
    """The value, or for a secret name a mark that changes when the secret does."""
    return f"{HIDDEN}{_mark(value)}" if is_secret(name) and value else value


def _mark(value: Any) -> str:
    return hashlib.sha256(str(value).encode()).hexdigest()[:8]


def hide_in_text(text: str, secrets: Iterable[str] = ()) -> str:
    """A text such as a study file without the values of secret names and passwords in URLs.

    `secrets` are hidden wherever they stand: behind a YAML anchor, in a block of text.
    """
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    without_urls = _URL.sub(rf"\g<head>:{HIDDEN}@", text)
    return _PAIR.sub(_hide_pair, without_urls)


def _hide_pair(match: re.Match[str]) -> str:
    name = match.group(2)
    return match.group("key") + HIDDEN if is_secret(name) else match.group(0)
