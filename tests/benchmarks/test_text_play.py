"""Text play beside the counters of real servers: the rules are the engine's own."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from benchmarks.text_play import HEADER, HERE, ask, pairs_of, read_texts, rows
from tuner.measure.records import Prompt
from tuner.search.replay_table import tables_of

RECORDED = ["ngram-chat.json", "llamacpp-ngram-edit.csv"]


@pytest.mark.parametrize("name", RECORDED)
def test_every_counter_of_one_request_at_a_time_is_computed(name: str) -> None:
    requests, most = read_texts(HERE / f"{Path(name).stem}.texts.json")
    landscape = tables_of([HERE / name])[0].landscape
    pairs = list(pairs_of(landscape, requests, most))
    methods = {each.method for each in pairs}
    assert methods == {"ngram-simple", "ngram-map-k", "ngram-mod"}
    assert len(pairs) > 240
    assert [each for each in pairs if each.computed != each.counted] == []
    assert sum(each.counted[0] > 0 for each in pairs) > 60


def test_several_slots_are_near() -> None:
    requests, most = read_texts(HERE / "ngram-editing-4-parallel.texts.json")
    landscape = tables_of([HERE / "ngram-editing-4-parallel.json"])[0].landscape
    found = list(rows("four", list(pairs_of(landscape, requests, most))))
    assert [row[1] for row in found] == ["ngram-map-k", "ngram-mod", "ngram-simple"]
    assert all(len(row) == len(HEADER) for row in found)
    assert all(float(row[5].rstrip("%")) <= 5.0 for row in found)


def test_texts_are_asked_greedily_and_kept_as_tokens() -> None:
    asked: list[dict[str, object]] = []

    def server(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        asked.append(body)
        answers = {
            "/apply-template": {"prompt": "<user>hello"},
            "/tokenize": {"tokens": [1, 2]},
            "/v1/chat/completions": {"__verbose": {"tokens": [3, 4, 5], "content": "hi you"}},
        }
        return httpx.Response(200, json=answers[request.url.path])

    client = httpx.Client(transport=httpx.MockTransport(server), base_url="http://x")
    prompt = Prompt("p", ({"role": "user", "content": "hello"},))
    assert ask(client, prompt, 2, 64) == {
        "block": 2, "asked": "hello", "prompt": [1, 2], "answer": [3, 4, 5], "said": "hi you",
    }  # fmt: skip
    assert asked[1]["content"] == "<user>hello"
    assert (asked[2]["temperature"], asked[2]["max_tokens"]) == (0, 64)
