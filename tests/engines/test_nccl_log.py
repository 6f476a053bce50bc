"""NCCL's own log: texts in the form of versions 2.18 to 2.29, ranks mixed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.engines.nccl_log import DEBUG, NcclReport, findings, parse_nccl_log

PCIE = """\
box:910:910 [0] NCCL INFO Bootstrap: Using eno1:10.0.0.4<0>
box:910:910 [0] NCCL INFO cudaDriverVersion 12080
box:910:910 [0] NCCL INFO NCCL version 2.27.3+cuda12.9
box:911:1021 [1] NCCL INFO NCCL_P2P_LEVEL set by environment to SYS
box:910:1020 [0] NCCL INFO NCCL_P2P_LEVEL set by environment to SYS
box:910:1020 [0] NCCL INFO NCCL_MAX_NCHANNELS set by environment to 4.
box:910:1020 [0] NCCL INFO Using network Socket
box:910:1020 [0] NCCL INFO ncclCommInitRank comm 0x55d0 rank 0 nranks 4 cudaDev 0 nvmlDev 0 busId 1000 commId 0x9f - Init START
box:910:1020 [0] NCCL INFO Trees [0] 1/-1/-1->0->-1 [1] 1/-1/-1->0->-1
box:910:1020 [0] NCCL INFO Channel 00/02 : 0 1 2 3
box:910:1020 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via SHM/direct/direct
box:911:1021 [1] NCCL INFO Channel 00/0 : 1[1] -> 2[2] via P2P/CUMEM/read
box:912:1022 [2] NCCL INFO Channel 01/0 : 2[2] -> 3[3] via P2P/CUMEM/read
box:910:1020 [0] NCCL INFO NCCL_PROTO set by environment to LL
box:910:1020 [0] NCCL INFO 2 coll channels, 2 collnet channels, 0 nvls channels, 2 p2p channels
box:910:1020 [0] NCCL INFO AllReduce: 14336 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}
box:910:1020 [0] NCCL INFO AllReduce: 458752 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}
box:910:1020 [0] NCCL INFO AllGather: 64128 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}
"""  # noqa: E501
ASKED = {"NCCL_PROTO": "LL", "NCCL_P2P_LEVEL": "SYS", "NCCL_MAX_NCHANNELS": "4", "PATH": "/bin"}


def test_a_log_is_read() -> None:
    report = parse_nccl_log(PCIE)
    assert (report.version, report.ranks, report.network) == ("2.27.3+cuda12.9", 4, "Socket")
    assert report.read == {
        "NCCL_P2P_LEVEL": "SYS", "NCCL_MAX_NCHANNELS": "4", "NCCL_PROTO": "LL",
    }  # fmt: skip
    assert report.transports == {"SHM/direct": 1, "P2P/CUMEM": 2}
    assert [str(choice) for choice in report.choices] == [
        "AllGather of 64128 bytes: Ring LL", "AllReduce of 14336 to 458752 bytes: Ring LL",
    ]  # fmt: skip
    assert report.summary == (
        "NCCL 2.27.3+cuda12.9, 4 ranks, 2 channels via P2P/CUMEM, 1 channels via SHM/direct, "
        "AllReduce of 14336 to 458752 bytes: Ring LL"
    )
    assert report.to_json()["choices"][0]["largest"] == 64128
    assert findings(report, ASKED) == []


@pytest.mark.parametrize(
    ("line", "collective", "algorithm", "protocol"),
    [
        ("NCCL INFO 524288 Bytes -> Algo 1 proto 2 time 41.2", "", "Ring", "Simple"),
        ("NCCL INFO AllReduce: 8 Bytes -> Algo 0 proto 0 time 9.5", "AllReduce", "Tree", "LL"),
        ("NCCL INFO AllReduce: 8 Bytes -> Algo NVLS proto Simple channel{Lo..Hi}={0..15}",
         "AllReduce", "NVLS", "Simple"),
        ("NCCL INFO Broadcast:    32768 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..0}",
         "Broadcast", "Ring", "Simple"),
        ("NCCL INFO AllReduce: 8 Bytes -> Algo 9 proto 7 time 1", "AllReduce", "9", "7"),
    ],
)  # fmt: skip
def test_choices_of_every_form(line: str, collective: str, algorithm: str, protocol: str) -> None:
    (choice,) = parse_nccl_log(f"box:1:1 [0] {line}\n").choices
    assert (choice.collective, choice.algorithm, choice.protocol) == (
        collective, algorithm, protocol,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("line", "transport"),
    [
        ("Channel 00 : 0[1000] -> 1[2000] via P2P/IPC", "P2P/IPC"),
        ("Channel 02/0 : 1[1] -> 0[0] via P2P/direct pointer", "P2P/direct pointer"),
        ("Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IB/0/GDRDMA", "NET/IB"),
        ("Channel 30/0 : 0[0] -> 1[6] via P2P/CUMEM", "P2P/CUMEM"),
    ],
)
def test_transports_of_every_form(line: str, transport: str) -> None:
    text = f"box:1:1 [0] NCCL INFO {line}\nbox:1:1 [0] NCCL INFO Connected all rings\n"
    assert parse_nccl_log(text).transports == {transport: 1}


def _with(*lines: str) -> NcclReport:
    return parse_nccl_log(
        "".join(f"b:1:1 [0] NCCL INFO {x}\n" for x in ("NCCL version 2.2", *lines))
    )


@pytest.mark.parametrize(
    ("report", "asked", "says"),
    [
        (NcclReport(), {"NCCL_PROTO": "LL"}, "NCCL logged nothing"),
        (_with(), {"NCCL_IB_TC": "1"}, "did not say that it read NCCL_IB_TC"),
        (_with("NCCL_P2P_LEVEL set by environment to 0."), {"NCCL_P2P_LEVEL": "NVL"},
         "NCCL read NCCL_P2P_LEVEL=NVL as 0"),
        (_with("NCCL_PROTO set by environment to simple"), {"NCCL_PROTO": "LL"},
         "NCCL read NCCL_PROTO=LL as simple"),
        (_with("Invalid value many for NCCL_NTHREADS, using default -2."),
         {"NCCL_NTHREADS": "many"}, "did not understand NCCL_NTHREADS=many"),
        (_with("NCCL_ALGO set by environment to Tree",
               "AllReduce: 24 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}"),
         {"NCCL_ALGO": "Tree"}, "NCCL_ALGO=Tree was asked for, and AllReduce of 24 bytes: Ring"),
        (_with("NCCL_ALGO set by environment to Ring",
               "AllReduce: 67108864 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..9}",
               "AllGather: 64 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}"),
         {"NCCL_ALGO": "Ring"}, "no all-reduce of up to 1048576 bytes went through NCCL, so NCC"),
    ],
)  # fmt: skip
def test_what_had_no_effect_is_named(
    report: NcclReport, asked: dict[str, str | None], says: str
) -> None:
    (text,) = findings(report, asked)
    assert says in text


@pytest.mark.parametrize(
    ("lines", "asked"),
    [
        ((), {}),
        ((), {"NCCL_PROTO": None, "HOME": "/x"}),
        (("NCCL_P2P_LEVEL set by environment to SYS",), {"NCCL_P2P_LEVEL": "5"}),
        (("NCCL_MIN_NCHANNELS set by environment to 8.",), {"NCCL_MIN_NCHANNELS": "08"}),
        (("NCCL_ALGO set by environment to ^NVLS",
          "AllReduce: 24 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}"),
         {"NCCL_ALGO": "^NVLS"}),
        (("NCCL_PROTO set by environment to ll",
          "24 Bytes -> Algo 1 proto 0 time 3.0"), {"NCCL_PROTO": "LL"}),
    ],
)  # fmt: skip
def test_what_had_its_effect_is_not(lines: tuple[str, ...], asked: dict[str, str | None]) -> None:
    assert findings(_with(*lines), asked) == []


def test_warnings_are_kept_once() -> None:
    line = "[2026-03-12 14:17:56] b:1:1 [0] enqueue.cc:1694 NCCL WARN Cuda failure 'no symbol'\n"
    assert parse_nccl_log(line * 3).warnings == ("Cuda failure 'no symbol'",)


@given(st.text())
def test_any_text_is_a_report(text: str) -> None:
    report = parse_nccl_log(text)
    assert isinstance(findings(report, {"NCCL_PROTO": "LL"}), list)
    assert isinstance(report.summary, str)


def test_debugging_logs_every_subsystem_that_is_read() -> None:
    assert DEBUG["NCCL_DEBUG"] == "INFO"
    assert {"INIT", "ENV", "TUNING", "P2P"} <= set(DEBUG["NCCL_DEBUG_SUBSYS"].split(","))
