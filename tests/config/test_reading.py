"""Reading YAML into values with places: aliases, merges, positions, limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.config.document import Document, Place, path_text
from tuner.config.reading import MAX_BYTES, MAX_DEPTH, read_document


def read(folder: Path, raw: str | bytes) -> Document:
    path = folder / "file.yaml"
    path.write_bytes(raw.encode() if isinstance(raw, str) else raw)
    return read_document(path, "file.yaml")


def texts(document: Document) -> list[str]:
    return [str(problem).splitlines()[0] for problem in document.problems]


def test_values_and_places(tmp_path: Path) -> None:
    document = read(tmp_path, "a: 1\nb:\n  - x\n  - {c: true, d: 'on'}\n")
    assert document.value == {"a": 1, "b": ["x", {"c": True, "d": "on"}]}
    assert document.problems == []
    assert document.place(("a",)) == Place(1, 4)
    assert document.place(("a",), of_key=True) == Place(1, 1)
    assert document.place(("b", 1, "c")) == Place(4, 9)
    assert document.place(("b", 1, "gone", "deep")) == Place(4, 5)
    assert document.get(("b", 1, "d")) == "on"
    assert document.get(("b", 7)) is None
    assert document.get(("a", "b")) is None


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    document = read(tmp_path, "\ufeffa: 1\na: 2\n")
    assert document.value == {"a": 1}
    assert texts(document) == ["file.yaml:2:1: a: must be given once, first at line 1"]


def test_merges_yield_to_what_is_written(tmp_path: Path) -> None:
    text = """
base: &base {x: 1, y: 2}
more: &more {<<: *base, y: 3, z: 4}
one: {<<: *more, x: 9}
two: {<<: [*base, {z: 5, x: 0}], w: 6}
"""
    value = read(tmp_path, text).value
    assert value["one"] == {"x": 9, "y": 3, "z": 4}
    assert value["two"] == {"w": 6, "x": 1, "y": 2, "z": 5}


def test_a_quoted_merge_key_is_text(tmp_path: Path) -> None:
    assert read(tmp_path, "'<<': 1\n").value == {"<<": 1}


def test_aliases_repeat_values(tmp_path: Path) -> None:
    document = read(tmp_path, "a: &a [1, 2]\nb: *a\nc: *a\n")
    assert document.value == {"a": [1, 2], "b": [1, 2], "c": [1, 2]}
    assert document.value["b"] is not document.value["a"]


def test_self_containing_values_are_refused(tmp_path: Path) -> None:
    document = read(tmp_path, "a: &a {b: *a}\nc: &c\n  <<: *c\n")
    assert texts(document) == [
        "file.yaml:1:4: a.b: must not contain itself",
        "file.yaml:2:4: c: must merge mappings with <<",
    ]


def test_a_merge_bomb_is_bounded(tmp_path: Path) -> None:
    lines = ["a0: &a0 {k: v}"]
    lines += [
        f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 10)}], k{i}: 1}}" for i in range(1, 9)
    ]
    document = read(tmp_path, "\n".join(lines))
    assert document.value is None
    assert texts(document) == [
        "file.yaml:1:1: must mean at most 20,000 values, its aliases mean more"
    ]


def test_depth_and_size_are_bounded(tmp_path: Path) -> None:
    deep = read(tmp_path, "a: " + "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1))
    assert texts(deep) == [f"file.yaml:1:43: must nest at most {MAX_DEPTH} deep"]
    large = read(tmp_path, b"#" * (MAX_BYTES + 1))
    assert texts(large) == ["file.yaml:1:1: must have at most 1,000,000 bytes"]


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        (b"a: \x07", "file.yaml:1:4: must hold printable characters, got U+0007"),
        (b"a: 1\nb: \xff", "file.yaml:2:4: must be UTF-8 text, got byte 0xff"),
        (
            b"a: *nope",
            "file.yaml:1:4: must be YAML, got a syntax error: found undefined alias 'nope'",
        ),
        (
            b"a: @x",
            "file.yaml:1:4: must be YAML, got a syntax error: found character '@' that cannot "
            "start any token",
        ),
        (b"  \n\n", "file.yaml:1:1: must hold a mapping, got an empty file"),
    ],
)
def test_unreadable_files(tmp_path: Path, raw: bytes, line: str) -> None:
    document = read(tmp_path, raw)
    assert texts(document) == [line]
    assert document.value is None


def test_a_tab_is_named_as_such(tmp_path: Path) -> None:
    assert texts(read(tmp_path, "a: 1\t# why\n")) == [
        "file.yaml:1:5: must hold spaces here, got a tab"
    ]
    assert read(tmp_path, "a: 'x\ty'\n").value == {"a": "x\ty"}


def test_path_text() -> None:
    assert path_text(("a", "b", 2, "c")) == "a.b[2].c"
    assert path_text(()) == ""
