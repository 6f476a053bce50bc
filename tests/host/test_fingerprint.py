"""A fingerprint is equal on equal machines, and says field by field what is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tuner.errors import Difference
from tuner.host import machine
from tuner.host.environment import relevant_environment
from tuner.host.fingerprint import Fingerprint, Subject, compare, gpu_fields, take
from tuner.host.gpus import Gpu

H200 = Gpu(0, "NVIDIA H200", "GPU-0", 141 << 30, "575.10")
SUBJECT = Subject("sglang 0.5.23", "org/model", "org/draft", study_env=("NCCL_ALGO",))


def shot(environ: dict[str, str] | None = None, gpus: tuple[Gpu, ...] = ()) -> Fingerprint:
    return take(SUBJECT, environ=environ or {}, gpus=gpus)


def test_two_of_the_same_are_equal() -> None:
    assert shot() == shot()
    assert shot().digest == shot().digest
    assert compare(shot(), shot()) == []


def test_the_host_name_and_exact_kernel_do_not_decide() -> None:
    moved = replace(shot(), details={"host": "elsewhere"})
    assert moved.digest == shot().digest
    assert "host" not in shot().fields
    assert shot().fields["kernel"].count(".") == 1


def test_a_leaked_variable_is_a_difference() -> None:
    found = compare(shot(), shot({"SGLANG_ENABLE_SPEC_V2": "1"}))
    assert found == [Difference("env.SGLANG_ENABLE_SPEC_V2", "absent", "1")]


def test_engine_model_and_draft_are_fields() -> None:
    other = take(Subject("sglang 0.5.24", "org/model", None), environ={}, gpus=())
    assert compare(shot(), other) == [
        Difference("engine", "sglang 0.5.23", "sglang 0.5.24"),
        Difference("draft_model", "name:org/draft", "none"),
    ]


def test_gpus_are_counted_by_kind() -> None:
    assert gpu_fields([]) == {}
    gpus = [replace(H200, index=i) for i in range(8)]
    assert gpu_fields(gpus) == {"gpus": "8 x NVIDIA H200, 141 GiB", "gpu_driver": "575.10"}
    found = compare(shot(gpus=(H200,)), shot(gpus=(replace(H200, driver="580.1"),)))
    assert found == [Difference("gpu_driver", "575.10", "580.1")]


def test_only_relevant_variables_and_no_secrets() -> None:
    environ = {
        "NCCL_ALGO": "Ring",
        "NCCL_PROTO": "LL",
        "NCCL_TOPO_FILE": "/x.xml",
        "CUDA_VISIBLE_DEVICES": "0,1",
        "OMP_NUM_THREADS": "4",
        "TRITON_CACHE_DIR": "/tmp/x",
        "VLLM_API_KEY": "secret",
        "HF_TOKEN": "secret",
        "PATH": "/bin",
        "LLAMA_ARG_THREADS": "2",
    }
    assert relevant_environment(environ, without=("NCCL_ALGO",)) == {
        "CUDA_VISIBLE_DEVICES": "0,1",
        "LLAMA_ARG_THREADS": "2",
        "NCCL_PROTO": "LL",
        "NCCL_TOPO_FILE": "/x.xml",
        "OMP_NUM_THREADS": "4",
    }


@pytest.mark.parametrize(
    ("text", "quota"), [("max 100000\n", "none"), ("350000 100000\n", "3.5"), ("", "none")]
)
def test_a_containers_quota(tmp_path: Path, text: str, quota: str) -> None:
    (tmp_path / "cpu.max").write_text(text)
    assert machine.cpu_quota(tmp_path / "cpu.max") == quota
    assert machine.cpu_quota(tmp_path / "absent") == "none"


def test_a_cpu_without_a_telling_name_has_its_family(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text("processor\t: 0\ncpu family\t: 6\nmodel\t\t: 167\nmodel name\t: Xeon\n\n")
    assert machine.cpu_model(file) == "Xeon, family 6 model 167"
    file.write_text("processor\t: 0\nBogoMIPS\t: 50\n")
    assert machine.cpu_model(file) == machine.platform.machine()
