"""A small study whose servers are made up, opened on a real database in a temporary folder."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tuner.args import Params, ServerArgs
from tuner.config.loader import load_study
from tuner.host.fingerprint import Fingerprint
from tuner.search.opened import Asked, OpenStudy
from tuner.search.sampling import Ground, make_suggester
from tuner.search.study import StudySetup, open_study
from tuner.space import build_space, survey
from tuner.store.database import open_store
from tuner.store.place import place_of
from tuner.store.record import LoadPointRecord, Seconds, TrialRecord

STUDY = """
name: demo
engine: {{kind: fake}}
space:
  parameters:
    steps: {{flag: steps, int: [1, {steps}]}}
    topk: {{flag: topk, choices: [1, 2, 4]}}
    draft: {{flag: draft, choices: [4, 8], when: topk > 1}}
    nccl: {{env: NCCL_ALGO, choices: [unset, Ring]}}
  start: {start}
workload: {{prompts: {{builtin: mixed}}, load: [{{concurrency: 1}}, {{concurrency: 8}}]}}
objective: {{{direction}: {metric}, at: {{concurrency: 1}}}}
search: {{sampler: {sampler}, seed: 7}}
"""
DEFAULTS = {
    "steps": 3,
    "start": "[]",
    "direction": "maximize",
    "metric": "output_tokens_per_s",
    "sampler": "tpe",
}


def canonical(params: Params) -> ServerArgs:
    """Every point is a server of its own, but draft 8 means 4 where steps is 1."""
    flags = {name: value for name, value in params.items() if name != "nccl"}
    if flags.get("steps") == 1 and "draft" in flags:
        flags["draft"] = 4
    nccl = params.get("nccl", "unset")
    return ServerArgs(flags, {} if nccl == "unset" else {"NCCL_ALGO": str(nccl)})


@dataclass
class Workshop:
    """Makes setups, grounds, records and open studies in one folder."""

    folder: Path

    def setup(self, *, fingerprint: Mapping[str, str] | None = None, **changes: Any) -> StudySetup:
        path = self.folder / "demo.yaml"
        path.write_text(textwrap.dedent(STUDY.format(**{**DEFAULTS, **changes})))
        loaded = load_study(path)
        taken = Fingerprint(fingerprint or {"gpu": "none", "driver": "1"}, {"host": "here"})
        return StudySetup(loaded, build_space(loaded), "workload-1", taken)

    def ground(self, setup: StudySetup, launches: int = 10) -> Ground:
        found = survey(setup.space, canonical, lambda args: [])
        return Ground(setup.space, found, setup.loaded.config.search, launches=launches)

    @contextmanager
    def opened(self, setup: StudySetup | None = None, *, new: bool = False) -> Iterator[OpenStudy]:
        place = place_of("demo", f"sqlite:///{self.folder}/demo/study.db")
        with place.results.lock(), open_store(place.url, create=True) as store:
            yield open_study(setup or self.setup(), store, place.results, new=new)

    def record(self, asked: Asked, value: float | None = None, **changes: Any) -> TrialRecord:
        """A finished trial: faster with more steps, the baseline at 100."""
        speed = 100.0 if asked.is_baseline else 95.0 + 10 * int(asked.params["steps"])
        value = speed if value is None else value
        point = LoadPointRecord(
            load="c1", per_block={"output_tokens_per_s": [value, 2 * value, value / 2]}
        )
        fields: dict[str, Any] = {
            "number": asked.number,
            "state": "baseline" if asked.is_baseline else "complete",
            "params": dict(asked.params),
            "digest": "base" if asked.is_baseline else canonical(asked.params).digest,
            "value": value,
            "vs_baseline": value / 100.0,
            "metrics": {"output_tokens_per_s": value},
            "load_points": [point],
            "seconds": Seconds(launch=1.0, total=2.0),
        }
        return TrialRecord(**{**fields, **changes})

    def run(self, opened: OpenStudy, launches: int = 10, limit: int = 999) -> list[Asked]:
        """Ask and finish until nothing is left or the limit is reached."""
        ground = self.ground(opened.setup, launches)
        suggester = make_suggester(ground)
        asked = []
        while len(asked) < limit and (trial := opened.ask(ground, suggester)):
            opened.finish(self.record(trial))
            asked.append(trial)
        return asked

    @staticmethod
    def fork(action: Callable[[], None]) -> int:
        """Start an action in a forked child; its process id."""
        pid = os.fork()
        if pid == 0:
            try:
                action()
                os._exit(0)
            except BaseException as error:  # noqa: BLE001 - a forked child must never return
                print(f"child: {error!r}", file=sys.stderr, flush=True)
                os._exit(1)
        return pid

    @staticmethod
    def status_of(pid: int) -> int:
        """How a child ended: its exit status, or minus the signal that ended it."""
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def in_child(self, action: Callable[[], None]) -> int:
        """Run an action in a forked child and wait for its end."""
        return self.status_of(self.fork(action))


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)


@pytest.fixture
def make_asked() -> Callable[..., Asked]:
    def make(number: int = 1, **params: Any) -> Asked:
        return Asked(number, params or {"steps": 3, "topk": 1, "nccl": "unset"})

    return make
