"""Owns reading one YAML file into a `Document`: bytes, encoding, syntax, limits.

What is wrong with the YAML itself is reported here; knows nothing of studies.
"""

from __future__ import annotations

import difflib
from pathlib import Path

import yaml

from tuner.config.construction import Construction, place_of
from tuner.config.document import Document, Place

MAX_BYTES = 1_000_000
MAX_DEPTH = 40


def read_document(path: Path, label: str | None = None) -> Document:
    """The document of a file; what is wrong with it is in its `problems`, never raised."""
    document = Document(label if label is not None else str(path), path)
    try:
        raw = _read(path)
        document.text = _decode(raw)
        document.tags, node = _parse(document.text)
    except _Refused as refusal:
        place = Place(refusal.line, refusal.column)
        document.problems.append(document.problem_at(place, (), refusal.message, refusal.hint))
        return document
    Construction(document).run(node)
    return document


def names_a_file(path: Path) -> bool:
    """True where a file is; False too for a name that no file can have (too long, a NUL)."""
    try:
        return path.is_file()
    except OSError:
        return False


class _Refused(Exception):
    """The file cannot be read any further."""

    def __init__(self, message: str, hint: str = "", line: int = 1, column: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.line = line
        self.column = column


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        reason = (error.strerror or "unreadable").lower()
        raise _Refused(f"must be a readable file, got {reason}", _similar_file(path)) from None
    if len(raw) > MAX_BYTES:
        raise _Refused(f"must have at most {MAX_BYTES:,} bytes", "Name a YAML file.")
    return raw


def _similar_file(path: Path) -> str:
    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return f"Check the folder: {path.parent} cannot be listed."
    near = difflib.get_close_matches(path.name, names, n=1)
    return f"Did you mean {path.parent / near[0]}?" if near else "Check the path."


def _decode(raw: bytes) -> str:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode("utf-8-sig", errors="replace")
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        raise _Refused(
            f"must be UTF-8 text, got byte 0x{raw[error.start]:02x}",
            "Save the file as UTF-8.",
            line,
            column,
        ) from None
    if not text.strip():
        raise _Refused("must hold a mapping, got an empty file", "Begin with `tuner init`.")
    return text


def _parse(text: str) -> tuple[dict[Place, str], yaml.Node]:
    """The tags by place and the node tree; refuses what cannot be read any further."""
    try:
        tags = _scan_events(text)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error, text) from None
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        message = f"must hold printable characters, got U+{error.character:04X}"
        raise _Refused(message, "Remove the character.", line, column) from None
    if node is None:
        raise _Refused("must hold a mapping, got only comments", "Begin with `tuner init`.")
    return tags, node


def _syntax_error(error: yaml.MarkedYAMLError, text: str) -> _Refused:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    lines = text.splitlines()
    near = lines[line - 1] if line <= len(lines) else ""
    if "\t" in near[: len(near) - len(near.lstrip())] or "'\\t'" in str(error.problem):
        return _Refused("must hold spaces here, got a tab", "Write spaces instead.", line, column)
    detail = str(error.problem or error.context).replace("\n", " ")
    return _Refused(
        f"must be YAML, got a syntax error: {detail}", _syntax_hint(near), line, column
    )


def _syntax_hint(line: str) -> str:
    if any(sign in line for sign in (": *", ": &", ": %", ": @", ": `", ": !")):
        return "Write the value in quotes."
    return "Check quotes, brackets and indentation here and just above."


def _scan_events(text: str) -> dict[Place, str]:
    tags: dict[Place, str] = {}
    depth = documents = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        place = place_of(event)
        documents += isinstance(event, yaml.DocumentStartEvent)
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if documents > 1:
            raise _Refused("must hold one document", "Remove the second ---.", *place)
        if depth > MAX_DEPTH:
            raise _Refused(f"must nest at most {MAX_DEPTH} deep", "Flatten it.", *place)
        tag = getattr(event, "tag", None)
        if tag:
            tags[place] = tag.replace("tag:yaml.org,2002:", "!!")
    return tags
