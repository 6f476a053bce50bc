"""A study with a token runs, and the token is nowhere but in the servers' environment."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

from tuner.config.loader import load_study
from tuner.server import procfs
from tuner.server.process import ServerProcess

TOKEN = "hf_kQ7vzu2BxLm4"
STUDY_ENV = f"engine: {{kind: fake, env: {{HF_TOKEN: {TOKEN}, NCCL_ALGO: Ring}}, behaviour: "


def with_token(study: Any) -> None:
    study.write(behaviour="{print_env: [HF_TOKEN, NCCL_ALGO], step_ms: 1}")
    text = study.file.read_text().replace("engine: {kind: fake, behaviour: ", STUDY_ENV)
    study.file.write_text(text)


def command_lines() -> str:
    return "\n".join(procfs.read_cmdline(stat.id.pid) for stat in procfs.all_processes())


def test_a_token_of_the_study_reaches_the_servers_and_nothing_else(real_study: Any) -> None:
    with_token(real_study)
    with real_study.start() as process:
        said, listed = [], ""
        for line in process.stdout:
            said.append(line)
            listed += command_lines() if line == "BlockMeasured\n" and not listed else ""
    assert process.returncode == 0, said
    assert "tuner.server.fake" in listed
    assert TOKEN not in listed
    assert TOKEN not in "".join(said)
    log = (real_study.results / "trials/0000/server.log").read_text()
    assert "HF_TOKEN=***" in log  # it was there, and the log does not show it
    assert "NCCL_ALGO=Ring" in log
    for path in real_study.results.rglob("*"):
        if path.is_file():
            raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
            assert TOKEN.encode() not in raw, path
    assert real_study.records()[0].requested_args.env == {"NCCL_ALGO": "Ring"}


def test_a_loaded_study_shows_no_secret(real_study: Any) -> None:
    with_token(real_study)
    loaded = load_study(real_study.file)
    assert loaded.secrets == {"HF_TOKEN": TOKEN}
    assert loaded.config.engine.env == {"NCCL_ALGO": "Ring"}
    assert TOKEN not in repr(loaded)
    other = real_study.file.read_text().replace(TOKEN, "hf_another")
    real_study.file.write_text(other)
    assert load_study(real_study.file).digest == loaded.digest  # a new token is the same study


def test_a_log_is_not_written_through_a_link(fake_server: Any, tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("precious")
    server: ServerProcess = fake_server({}, ready=False)
    link = tmp_path / "again" / "server.log"
    link.parent.mkdir()
    link.symlink_to(target)
    from tuner.server.fake.launching import fake_command
    from tuner.server.ports import free_port

    port = free_port()
    with ServerProcess.launch(fake_command(port, {}), port=port, log_path=link):
        pass
    assert server.poll() is None
    assert target.read_text() == "precious"
    assert not link.is_symlink()
