"""Owns reading prompts out of files: which formats there are, and what is wrong with a line.

Formats, told apart by content: JSON lines with `prompt`, `messages` or `turns` (MT-bench and
Spec-Bench; the first turn is asked), OpenAI request bodies or batch lines (`body`), ShareGPT
JSON (the first human turn is asked), and plain text with one prompt per line.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.errors import UsageError
from tuner.measure.records import Prompt

_ID_KEYS = ("id", "question_id", "custom_id")
_HUMAN = frozenset({"human", "user"})
_MESSAGES_HINT = 'Write {"messages": [{"role": "user", "content": "…"}]}.'


def read_prompts(path: Path) -> list[Prompt]:
    """All prompts of a file in file order, ids unique. Raises UsageError naming the line."""
    try:
        text = path.read_text(encoding="utf-8-sig")  # spreadsheets and editors add the mark
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path}: must be a readable UTF-8 file of prompts, got {error}.",
            "Check workload.prompts.file.",
        ) from None
    start = text.lstrip()[:1]
    if start == "[":
        prompts = _sharegpt(path, text)
    elif start == "{":
        prompts = _json_lines(path, text)
    else:
        prompts = [_plain(path, n, line) for n, line in enumerate(text.split("\n"), 1)]
    return _unique_ids([prompt for prompt in prompts if prompt.messages])


def _plain(path: Path, number: int, line: str) -> Prompt:
    line = line.strip()
    messages = ({"role": "user", "content": line},) if line else ()
    return Prompt(f"{path.stem}-{number}", messages)


def _json_lines(path: Path, text: str) -> list[Prompt]:
    prompts = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            entry = json.loads(line)
        except ValueError as error:
            raise UsageError(
                f"{where}: must be one JSON object, got {error}.",
                "Write one object per line, or name a file of plain lines .txt.",
            ) from None
        prompts.append(_entry(where, entry, f"{path.stem}-{number}"))
    return prompts


def _sharegpt(path: Path, text: str) -> list[Prompt]:
    try:
        entries = json.loads(text)
    except ValueError as error:
        raise UsageError(
            f"{path}: must be a JSON array (ShareGPT), got {error}.",
            "Name a file with one object per line .jsonl.",
        ) from None
    return [
        _entry(f"{path}: item {number}", entry, f"{path.stem}-{number}")
        for number, entry in enumerate(entries, 1)
    ]


def _entry(where: str, entry: Any, default_id: str) -> Prompt:
    if not isinstance(entry, Mapping):
        raise UsageError(
            f"{where}: must be an object with prompt, messages, turns or conversations, "
            f"got {json.dumps(entry)[:60]}.",
            _MESSAGES_HINT,
        )
    body = entry.get("body")
    source = body if isinstance(body, Mapping) else entry
    identity = next((str(entry[key]) for key in _ID_KEYS if key in entry), default_id)
    category = str(entry.get("category") or "other")
    return Prompt(identity, tuple(_messages(where, source)), category)


def _messages(where: str, source: Mapping[str, Any]) -> list[Mapping[str, str]]:
    if "messages" in source:
        return _chat(where, source["messages"])
    if "conversations" in source:
        return _conversation(source["conversations"])
    text = source.get("prompt", source.get("turns"))
    if isinstance(text, list) and text and isinstance(text[0], str):
        text = text[0]
    if isinstance(text, list) and text and isinstance(text[0], int):
        raise UsageError(
            f"{where}: prompt must be text, got token ids.",
            "Speculation is measured on real text: token ids say nothing about acceptance.",
        )
    if not isinstance(text, str) or not text.strip():
        raise UsageError(
            f"{where}: must have prompt, messages, turns or conversations with text, "
            f"got keys {', '.join(sorted(map(str, source))) or 'none'}.",
            _MESSAGES_HINT,
        )
    return [{"role": "user", "content": text}]


def _chat(where: str, messages: Any) -> list[Mapping[str, str]]:
    """Role and text of each message; trailing answers are dropped: they are to be generated."""
    if not isinstance(messages, list) or not all(isinstance(m, Mapping) for m in messages):
        raise UsageError(f"{where}: messages must be a list of objects.", _MESSAGES_HINT)
    chat = [
        {"role": str(m.get("role", "user")), "content": _content(where, m.get("content"))}
        for m in messages
    ]
    while chat and chat[-1]["role"] == "assistant":
        chat.pop()
    if not any(message["content"].strip() for message in chat):
        raise UsageError(f"{where}: messages must hold a question, got no text.", _MESSAGES_HINT)
    return list(chat)


def _content(where: str, content: Any) -> str:
    if isinstance(content, list):
        parts = [part for part in content if isinstance(part, Mapping)]
        if any(part.get("type", "text") != "text" for part in parts):
            raise UsageError(
                f"{where}: message content must be text, got an image or audio part.",
                "Leave requests with images out of the file.",
            )
        return "".join(str(part.get("text", "")) for part in parts)
    return content if isinstance(content, str) else ""


def _conversation(turns: Any) -> list[Mapping[str, str]]:
    """The first human turn; none gives no prompt, as such entries are common in ShareGPT."""
    for turn in turns if isinstance(turns, list) else ():
        if isinstance(turn, Mapping) and turn.get("from") in _HUMAN:
            text = turn.get("value")
            if isinstance(text, str) and text.strip():
                return [{"role": "user", "content": text}]
    return []


def _unique_ids(prompts: list[Prompt]) -> list[Prompt]:
    seen: dict[str, int] = {}
    unique = []
    for prompt in prompts:
        times = seen[prompt.id] = seen.get(prompt.id, 0) + 1
        name = prompt.id if times == 1 else f"{prompt.id}#{times}"
        unique.append(Prompt(name, prompt.messages, prompt.category))
    return unique
