"""Owns writing a file so that a crash leaves the old one or the new one, never half of it."""

from __future__ import annotations

import contextlib
import errno
import gzip
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

from tuner.errors import StoreError

_HINTS = {
    errno.ENOSPC: "Free some space on that disk and run again: finished trials are kept.",
    errno.EDQUOT: "Free some of your quota and run again: finished trials are kept.",
    errno.EROFS: "That file system is read-only: move the study to a writable folder.",
    errno.EACCES: "Make the folder writable for this user, or move the study.",
    errno.EPERM: "Make the folder writable for this user, or move the study.",
}


@contextlib.contextmanager
def file_errors(path: Path) -> Iterator[None]:
    """Turn the system's refusal into a StoreError that names the place and the way out."""
    try:
        yield
    except OSError as error:
        hint = _HINTS.get(error.errno or 0, "Check that the folder exists and can be written.")
        raise StoreError(f"{path}: must be writable, got: {error.strerror}.", hint) from error


def write_atomic(path: Path, data: bytes) -> None:
    """Replace a file as a whole and make it durable before returning.

    Raises:
        StoreError: the disk is full, read-only, or refuses.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    make_folder(path.parent)
    with file_errors(path):
        try:
            with partial.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        except OSError:
            partial.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def make_folder(folder: Path) -> None:
    """Create a folder and what it lies in, each made durable; raises StoreError."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    with file_errors(folder):
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def write_text(path: Path, text: str) -> None:
    """`write_atomic` of text as UTF-8."""
    write_atomic(path, text.encode())


def write_gzip(path: Path, text: str) -> None:
    """`write_atomic` of gzipped UTF-8; equal text gives equal bytes."""
    write_atomic(path, gzip.compress(text.encode(), compresslevel=6, mtime=0))


def read_gzip(path: Path) -> str:
    """Inverse of `write_gzip`; raises OSError or EOFError for a damaged file."""
    data = path.read_bytes()
    if not data:
        raise EOFError("the file is empty")
    try:
        return gzip.decompress(data).decode()
    except zlib.error as error:
        raise EOFError(str(error)) from error


def sync_folder(folder: Path) -> None:
    """Make a rename or a new name in this folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems cannot sync a folder
            raise
    finally:
        os.close(handle)
