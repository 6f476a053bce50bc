"""Owns what a storage URL may be and how it is shown; opens nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from tuner.errors import StoreError

_EXAMPLE = "sqlite:///results/NAME/study.db or postgresql+psycopg://USER@HOST/DATABASE"


@dataclass(frozen=True, slots=True)
class StorageUrl:
    """A storage URL that was understood: an SQLite file (absolute path) or PostgreSQL."""

    url: URL
    path: Path | None

    @property
    def is_sqlite(self) -> bool:
        """True for a file on this machine."""
        return self.path is not None

    @property
    def text(self) -> str:
        """The URL in full, password included: for drivers, never for people."""
        return self.url.render_as_string(hide_password=False)

    @property
    def shown(self) -> str:
        """The URL for people: absolute, without the password."""
        return self.url.render_as_string(hide_password=True)

    @property
    def has_password(self) -> bool:
        """True when the URL holds a secret."""
        return self.url.password is not None


def parse_url(text: str) -> StorageUrl:
    """Understand a storage URL; `postgres://` and `postgresql://` mean psycopg 3.

    Raises:
        StoreError: a bare path, an unknown scheme, an in-memory database.
    """
    if "://" not in text:
        raise StoreError(
            f"storage: must be a URL such as {_EXAMPLE}, got {text!r}.",
            f"Write sqlite:///{text} for the file {Path(text).absolute()}.",
        )
    try:
        url = make_url(text)
    except (ArgumentError, ValueError) as error:
        raise StoreError(f"storage: must be a URL such as {_EXAMPLE}.", str(error)) from error
    backend = url.drivername.partition("+")[0]
    if backend == "sqlite":
        return _sqlite(text)
    if backend in ("postgresql", "postgres"):
        return StorageUrl(url.set(drivername="postgresql+psycopg"), None)
    raise StoreError(
        f"storage: must be SQLite or PostgreSQL, got {backend!r}.", f"Write {_EXAMPLE}."
    )


def _sqlite(text: str) -> StorageUrl:
    database = text.partition("://")[2].removeprefix("/")
    if re.search(r"\?\w+=", database):
        raise StoreError(
            f"storage: must be sqlite:/// and a path alone, got {text!r}.",
            "Remove everything from the question mark on.",
        )
    if database in ("", ":memory:"):
        raise StoreError(
            "storage: must name a file, got an in-memory database.",
            "Write sqlite:///results/NAME/study.db; an in-memory study would be lost.",
        )
    path = Path(database).expanduser().absolute()
    return StorageUrl(URL.create("sqlite", database=str(path)), path)
