"""Owns a log file that never grows beyond its cap: head and tail kept, the middle dropped.

The head tells how the server started, the tail why it ended. The file is one readable text at
any moment: it is compacted by an atomic replacement. Standard library only, because the
supervisor runs it in a bare interpreter.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

MARKER = "\n[... {} bytes dropped here: this log is capped at {} bytes ...]\n"


class CappedLog:
    """Appends bytes to `path`, whose size stays at or below `max_bytes`.

    A disk that cannot take more loses lines, never blocks or raises: the server must go on.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path = path
        self._max = max(max_bytes, 4096)
        self._keep = self._max // 4
        self._dropped = 0
        self._size = 0
        self._file = self._open("wb")

    def write(self, data: bytes) -> None:
        """Append; what does not fit pushes out the oldest bytes after the head."""
        room = self._max // 4
        for start in range(0, len(data), room):
            piece = data[start : start + room]
            if self._size + len(piece) > self._max:
                self._compact()
            self._append(piece)

    def close(self) -> None:
        """Close the file; idempotent."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _open(self, mode: str) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        return os.open(self._path, flags | (os.O_TRUNC if mode == "wb" else 0), 0o644)

    def _append(self, piece: bytes) -> None:
        try:
            self._size += os.write(self._file, piece)
        except OSError:
            self._dropped += len(piece)

    def _compact(self) -> None:
        """Rewrite the file as head, marker, tail: about half the cap."""
        head = os.pread(self._file, self._keep, 0)
        tail = os.pread(self._file, self._keep, self._size - self._keep)
        old_marker = 0 if not self._dropped else len(self._marker())
        self._dropped += self._size - len(head) - len(tail) - old_marker
        text = head + self._marker() + tail
        draft = self._path.with_name(self._path.name + ".compacting")
        try:
            draft.write_bytes(text)
            draft.replace(self._path)
            fresh = self._open("ab")
        except OSError:
            with contextlib.suppress(OSError):
                draft.unlink()
            os.ftruncate(self._file, len(head))
            self._size = len(head)
            return
        os.close(self._file)
        self._file, self._size = fresh, len(text)

    def _marker(self) -> bytes:
        return MARKER.format(self._dropped, self._max).encode()


def read_tail(path: Path, max_bytes: int) -> str:
    """The last `max_bytes` of a log as text; "" when there is no such file."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - max_bytes))
            return file.read(max_bytes).decode(errors="replace")
    except OSError:
        return ""
