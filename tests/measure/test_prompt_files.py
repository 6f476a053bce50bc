"""Every format that prompts come in, and what is said about broken lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tuner.errors import UsageError
from tuner.measure.prompt_files import read_prompts
from tuner.measure.records import Prompt


def user(text: str) -> tuple[dict[str, str], ...]:
    return ({"role": "user", "content": text},)


def lines(path: Path, *entries: Any) -> Path:
    path.write_text("\n".join(json.dumps(entry) for entry in entries) + "\n")
    return path


def test_json_lines(tmp_path: Path) -> None:
    file = lines(
        tmp_path / "p.jsonl",
        {"prompt": "One?", "category": "qa", "id": 5},
        {"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "Two?"}]},
        {"turns": ["Three?", "And four?"], "question_id": 81, "category": "writing"},
    )
    assert read_prompts(file) == [
        Prompt("5", user("One?"), "qa"),
        Prompt("p-2", ({"role": "system", "content": "S"}, *user("Two?")), "other"),
        Prompt("81", user("Three?"), "writing"),
    ]


def test_openai_request_logs(tmp_path: Path) -> None:
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "Hel"}, {"text": "lo"}]},
        {"role": "assistant", "content": "the logged answer"},
    ]
    file = lines(
        tmp_path / "log.jsonl",
        {"model": "m", "messages": messages, "max_tokens": 5},
        {"custom_id": "r-1", "method": "POST", "body": {"messages": [*user("Hi")]}},
        {"model": "m", "prompt": ["Once upon a time"]},
    )
    assert [p.messages for p in read_prompts(file)] == [
        user("Hello"),
        user("Hi"),
        user("Once upon a time"),
    ]
    assert [p.id for p in read_prompts(file)] == ["log-1", "r-1", "log-3"]


def test_earlier_answers_of_a_conversation_stay(tmp_path: Path) -> None:
    chat = [*user("A"), {"role": "assistant", "content": "B"}, *user("C")]
    assert read_prompts(lines(tmp_path / "c.jsonl", {"messages": chat}))[0].messages == (*chat,)


def test_sharegpt(tmp_path: Path) -> None:
    file = tmp_path / "s.json"
    file.write_text(
        json.dumps(
            [
                {"id": "a", "conversations": [{"from": "human", "value": "Q"},
                                              {"from": "gpt", "value": "A"}]},
                {"id": "b", "conversations": []},
                {"id": "c", "conversations": [{"from": "gpt", "value": "first"},
                                              {"from": "user", "value": "R"}]},
            ]
        )
    )  # fmt: skip
    assert [(p.id, p.messages) for p in read_prompts(file)] == [("a", user("Q")), ("c", user("R"))]


def test_plain_lines(tmp_path: Path) -> None:
    file = tmp_path / "plain.txt"
    file.write_text("What is rain?\n\n  And snow?  \n")
    assert [(p.id, p.messages) for p in read_prompts(file)] == [
        ("plain-1", user("What is rain?")),
        ("plain-3", user("And snow?")),
    ]


def test_ids_become_unique(tmp_path: Path) -> None:
    file = lines(tmp_path / "p.jsonl", *({"id": "x", "prompt": f"{n}?"} for n in range(3)))
    assert [p.id for p in read_prompts(file)] == ["x", "x#2", "x#3"]


IMAGE = [{"type": "image_url", "image_url": {"url": "x"}}]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"question": "x"}, r":2: must have prompt, messages, turns or conversations .* question"),
        ({"prompt": ""}, ":2: must have prompt"),
        ({"prompt": [1, 2, 3]}, ":2: prompt must be text, got token ids"),
        ({"messages": "hi"}, ":2: messages must be a list of objects"),
        ({"messages": [{"role": "user"}]}, ":2: messages must hold a question, got no text"),
        ({"messages": [{"role": "user", "content": IMAGE}]}, "must be text, got an image"),
        ([1], ":2: must be an object"),
    ],
)
def test_mistakes_name_the_line(tmp_path: Path, entry: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_prompts(lines(tmp_path / "p.jsonl", {"prompt": "ok"}, entry))


def test_broken_json_names_the_line(tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text('{"prompt": "a"}\n{"prompt": \n')
    with pytest.raises(UsageError, match=r"p\.jsonl:2: must be one JSON object"):
        read_prompts(file)
    file.write_text("[1, 2")
    with pytest.raises(UsageError, match="must be a JSON array"):
        read_prompts(file)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="must be a readable UTF-8 file of prompts"):
        read_prompts(tmp_path / "none.jsonl")


# ---- what real exports hold ------------------------------------------------------------------
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)


@given(st.lists(TEXTS, min_size=1, max_size=4), st.booleans())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_survives_json_lines(tmp_path: Path, texts: list[str], is_ascii: bool) -> None:
    """Chats are full of U+2028, U+0085 and form feeds, which are no ends of lines in JSON."""
    rows = [json.dumps({"prompt": text}, ensure_ascii=is_ascii) for text in texts]
    file = tmp_path / "p.jsonl"
    file.write_bytes("\n".join(rows).encode())
    assert [p.messages for p in read_prompts(file)] == [user(text) for text in texts]


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\x0c", "\x1c"])
def test_a_plain_line_ends_where_editors_end_it(tmp_path: Path, separator: str) -> None:
    file = tmp_path / "p.txt"
    file.write_text(f"one{separator}still one\r\ntwo\n\nthree")
    found = read_prompts(file)
    texts = [f"one{separator}still one", "two", "three"]
    assert [p.messages for p in found] == [user(text) for text in texts]
    assert [p.id for p in found] == ["p-1", "p-2", "p-4"]


@pytest.mark.parametrize(
    "text", ['{"prompt": "Hi"}', '[{"conversations": [{"from": "human", "value": "Hi"}]}]', "Hi"]
)
def test_a_byte_order_mark_is_not_part_of_the_prompts(tmp_path: Path, text: str) -> None:
    file = tmp_path / "p"
    file.write_text(text, encoding="utf-8-sig")
    assert [p.messages for p in read_prompts(file)] == [user("Hi")]
