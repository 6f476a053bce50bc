"""Owns keeping secrets out of what is stored for people to read: names, URLs, study texts."""

from __future__ import annotations

import re
from typing import Any

from tuner.args import digest_of

HIDDEN = "***"

_NAME = r"[\w.-]*(?:TOKEN|SECRET|PASSW|CREDENTIAL|API[_-]?KEY|ACCESS[_-]?KEY|AUTH[_-]?KEY)[\w.-]*"
_SECRET_NAME = re.compile(_NAME, re.IGNORECASE)
_COUNTED = re.compile(r"(?:^|[_.-])(?:max|num|n|min|draft|output|prompt)[_.-]?.*tokens?", re.I)
_PAIR = re.compile(
    rf"""(?P<key>["']?({_NAME})["']?\s*[:=]\s*)(?P<value>[^\s,}}#][^,}}#\n]*)""", re.I
)
_URL = re.compile(r"(?P<head>\w[\w+.-]*://[^/\s:@]*):(?P<secret>[^@/\s]+)@")


def is_secret(name: str) -> bool:
    """True for names such as HF_TOKEN or api-key; not for counts such as max_tokens."""
    return _SECRET_NAME.fullmatch(name) is not None and _COUNTED.search(name) is None


def hide_value(name: str, value: Any) -> Any:
    """The value, or for a secret name a mark that changes when the secret does."""
    return f"{HIDDEN}{digest_of(str(value))[:8]}" if is_secret(name) and value else value


def hide_in_text(text: str) -> str:
    """A text such as a study file without the values of secret names and passwords in URLs."""
    without_urls = _URL.sub(rf"\g<head>:{HIDDEN}@", text)
    return _PAIR.sub(_hide_pair, without_urls)


def _hide_pair(match: re.Match[str]) -> str:
    name = match.group(2)
    return match.group("key") + HIDDEN if is_secret(name) else match.group(0)
