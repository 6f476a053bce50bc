"""Which reducers of a running SGLang go before NCCL, and how its log says that its own is off."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tuner.args import ServerArgs
from tuner.config.engine import SglangConfig
from tuner.engines.sglang.collectives import CUSTOM, collective_drifts, parse_start_log
from tuner.engines.sglang.engine import SglangEngine

DATA = Path(__file__).parent / "data" / "sglang"
LOGS = [
    # 0.5.23
    ("[2026-12-01 10:00:00 TP0] CustomAllReduceV2 is disabled because it's not supported on more "
     "than two PCIe-only GPUs. To silence this warning, specify disable_custom_all_reduce=True "
     "explicitly.", "off (it's not supported on more than two PCIe-only GPUs)"),
    ("[x] CustomAllReduceV2 is disabled because this process group spans across nodes.",
     "off (this process group spans across nodes)"),
    ("[x] CustomAllReduceV2 is disabled due to an unsupported world size: 3. Supported world "
     "sizes: [2, 4, 6, 8]. To silence this warning, specify …",
     "off (an unsupported world size: 3. Supported world sizes: [2, 4, 6, 8])"),
    ("[x] [AR] All-reduce call path: NCCL (custom AR disabled)",
     "off ([AR] All-reduce call path: NCCL (custom AR disabled))"),
    # 0.4 and early 0.5
    ("[x] Custom allreduce is disabled because your platform lacks GPU P2P capability or P2P test "
     "failed. To silence this warning, specify disable_custom_all_reduce=True explicitly.",
     "off (your platform lacks GPU P2P capability or P2P test failed)"),
    ("[x] Setup Custom allreduce failed with no module. To silence this warning, specify",
     "off (Setup Custom allreduce failed with no module)"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "says"), LOGS)
def test_the_log_says_that_the_custom_kernel_is_off(line: str, says: str) -> None:
    assert parse_start_log(f"before\n{line}\nafter\n") == {CUSTOM: says}


def test_a_silent_log_says_nothing() -> None:
    assert parse_start_log("") == {}
    assert parse_start_log((DATA / "ready_then_dies.log.txt").read_text()) == {}


ASKED = {"NCCL_PROTO": "LL", "NCCL_ALGO": None, "HOME": "/x"}


@pytest.mark.parametrize(
    ("effective", "env", "reducers"),
    [
        ({"tp-size": 8}, ASKED, "SGLang's custom all-reduce"),
        ({"tp-size": 8, "disable-custom-all-reduce": True}, ASKED, None),
        ({"tp-size": 8, CUSTOM: "off (nodes)"}, ASKED, None),
        ({"tp-size": 1}, ASKED, None),
        ({"tp-size": 8}, {"NCCL_PROTO": None, "FOO": "1"}, None),
        ({}, ASKED, None),
        ({"tp-size": 2, CUSTOM: "off", "enable-mscclpp": True}, ASKED, "MSCCL++"),
        ({"tp-size": 2, CUSTOM: "off", "enable-torch-symm-mem": True}, ASKED,
         "torch's symmetric memory"),
        ({"tp-size": 2, CUSTOM: "off", "flashinfer-allreduce-fusion-backend": "trtllm",
          "enable-flashinfer-allreduce-fusion": True}, ASKED, "FlashInfer's fused all-reduce"),
        ({"tp-size": 4, "enable-mscclpp": True}, ASKED, "MSCCL++, SGLang's custom all-reduce"),
    ],
)  # fmt: skip
def test_reducers_that_go_before_nccl(
    effective: dict[str, Any], env: dict[str, str | None], reducers: str | None
) -> None:
    found = list(collective_drifts(ServerArgs({}, env), effective))
    assert [drift.effective for drift in found] == ([reducers] if reducers else [])
    for drift in found:
        assert "so NCCL_PROTO may do nothing for decoding" in drift.message
        assert not drift.is_confounder


def test_each_reducer_names_what_keeps_it_away() -> None:
    every = {"tp-size": 4, "enable-mscclpp": True, "flashinfer-allreduce-fusion-backend": "auto"}
    (drift,) = collective_drifts(ServerArgs({}, ASKED), every)
    assert drift.message.endswith(
        "no enable-mscclpp and enforce-disable-flashinfer-allreduce-fusion and "
        "disable-custom-all-reduce makes NCCL take them"
    )


def test_the_engine_reports_it_among_its_drifts() -> None:
    engine = SglangEngine(
        SglangConfig(kind="sglang", model="m", args={"tp-size": 8}, env={"NCCL_PROTO": "LL"}),
        inherited={},
    )
    info = json.loads((DATA / "server_info_off.json").read_text())
    effective = engine.parse_effective(json.dumps({**info, "tp_size": 8}))
    names = [drift.name for drift in engine.drift(engine.fixed_args(), effective)]
    assert "all-reduce" in names
    effective |= engine.parse_start_log(LOGS[0][0])
    names = [drift.name for drift in engine.drift(engine.fixed_args(), effective)]
    assert "all-reduce" not in names
