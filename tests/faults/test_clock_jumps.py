"""The wall clock is set while a study runs: it is for people, nothing is decided by it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static long jump(void) {
    long seconds = 0;
    FILE *file = fopen(getenv("CLOCK_JUMP"), "r");
    if (file) { if (fscanf(file, "%ld", &seconds) != 1) seconds = 0; fclose(file); }
    return seconds;
}
int clock_gettime(clockid_t id, struct timespec *at) {
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(id, at);
    if (id == CLOCK_REALTIME) at->tv_sec += jump();
    return code;
}
int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
"""
COMPILER = shutil.which("cc") or shutil.which("gcc")


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file whose number of seconds every program started from now on adds to its clock."""
    if COMPILER is None:
        pytest.skip("no C compiler here")
    source, library = tmp_path / "clock.c", tmp_path / "clock.so"
    source.write_text(CLOCK)
    subprocess.run(
        [COMPILER, "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"],
        check=True,
        timeout=60,
    )
    monkeypatch.setenv("LD_PRELOAD", str(library))
    monkeypatch.setenv("CLOCK_JUMP", str(tmp_path / "jump"))
    return tmp_path / "jump"


@pytest.mark.parametrize("seconds", [-86400 * 400, 86400])
def test_a_clock_that_is_set_changes_no_result(real_study: Any, clock: Path, seconds: int) -> None:
    code, said = real_study.run("BlockMeasured:number=1", f"write:{clock}={seconds}")
    assert code == 0, said
    records = real_study.records()
    assert [record.state for record in records] == ["baseline", "complete"]
    assert all(0 < record.seconds.total < 90 for record in records)
    late = records[1]
    days = abs(int(late.finished_utc[:4]) - int(late.started_utc[:4]))
    assert days >= (1 if seconds < -86400 * 366 else 0), "the clock was not set at all"
    assert not [w for r in records for w in r.warnings if "cores used" in w and ": 9" in w]
    assert real_study.orphans() == []
    assert real_study.integrity() == "ok"


def test_a_study_that_is_killed_before_the_clock_is_set_back_resumes(
    real_study: Any, clock: Path
) -> None:
    code, said = real_study.run("StageChanged:stage=measuring,number=1", "SIGKILL")
    assert code == -9, said
    before = real_study.records()
    clock.write_text("-3600")
    code, said = real_study.run()
    assert code == 0, said
    assert real_study.records()[0] == before[0]
    assert [r.state for r in real_study.records()].count("complete") == 1
    assert said.count("TrialStarted") == 1
    assert real_study.orphans() == []
