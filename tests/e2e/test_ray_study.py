"""A study on a real Ray cluster of two nodes on this machine; one node is killed on the way."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tuner.store.database import open_store

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).parents[2]
SMALL = 80 << 20
STUDY = """
name: rayed
engine: {{kind: fake, behaviour: {{step_ms: 8, acceptance: [1, 1, 1, 1, 1], answer_tokens: 10}}}}
space: {{parameters: {{steps: {{flag: spec-steps, choices: [3, 4]}}}}}}
workload: {{prompts: {{builtin: mixed}}, blocks: 2, block_size: 2, held_out: 2, warm_up: 1,
           output_tokens: {{max: 10}}}}
objective: {{maximize: output_tokens_per_s}}
search: {{sampler: random, pruner: none}}
confirm: {{finalists: 1, rounds: 2, max_rounds: 2}}
fidelity: {{compare: "off"}}
execution: {{kind: ray, address: "{address}", gpus_per_server: 1, parallel: 2}}
"""


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    )
    head = {"num_cpus": 1, "num_gpus": 0, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args={**head, "object_store_memory": SMALL})
    yield made
    made.shutdown()


@pytest.mark.filterwarnings("ignore")
def test_a_killed_node_costs_one_launch(cluster: Any, tmp_path: Path) -> None:
    doomed = cluster.add_node(num_cpus=1, num_gpus=1, object_store_memory=SMALL)
    cluster.add_node(num_cpus=1, num_gpus=1, object_store_memory=SMALL)
    (tmp_path / "rayed.yaml").write_text(STUDY.format(address=cluster.address))
    command = [sys.executable, "-m", "tuner", "run", "rayed.yaml", "--verbose", "--json"]
    with subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stderr is not None
        assert run.stdout is not None
        narrated, measuring = [], 0
        for line in run.stderr:
            narrated.append(line)
            measuring += "measuring" in line
            if measuring == 2 and doomed is not None:
                cluster.remove_node(doomed, allow_graceful=False)
                doomed = None
        said = run.stdout.read()
    assert run.returncode == 0, "".join(narrated[-40:])
    assert said.startswith("{")
    with open_store(f"sqlite:///{tmp_path}/results/rayed/study.db", create=False) as store:
        records = store.trials("rayed")
    states = [record.state for record in records]
    assert states.count("complete") == 2
    assert "baseline" in states
    assert {record.fingerprint for record in records if record.fingerprint} != set()
    for record in records:
        if record.state == "complete":
            assert Path(record.log_path).is_file()
