"""Owns keeping known secrets out of a stream of bytes, whatever pieces it arrives in.

Standard library only: the supervisor runs it in a bare interpreter.
"""

from __future__ import annotations

from collections.abc import Sequence

BLOT = b"***"


class Blotter:
    """Replaces secrets; holds back only an end that may be the beginning of one."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self._secrets = [secret.encode() for secret in secrets if secret]
        self._held = b""

    def take(self, data: bytes) -> bytes:
        """What may be passed on now."""
        text = self._held + data
        for secret in self._secrets:
            text = text.replace(secret, BLOT)
        held = max((_overlap(text, secret) for secret in self._secrets), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def rest(self) -> bytes:
        """What was held back, at the end of the stream."""
        held, self._held = self._held, b""
        return held


def _overlap(text: bytes, secret: bytes) -> int:
    """The longest end of the text that begins the secret."""
    for length in range(min(len(text), len(secret) - 1), 0, -1):
        if text.endswith(secret[:length]):
            return length
    return 0
