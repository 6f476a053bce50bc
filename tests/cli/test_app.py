"""The command itself: help at once, errors as exit codes, results on stdout."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import optuna
import pytest
import typer
from typer.testing import CliRunner

from tuner import __version__
from tuner.cli.app import ORDER, build_app
from tuner.cli.options import JSON, study_names, trial_numbers
from tuner.cli.output import error_lines, finite, fold, table_lines
from tuner.errors import (
    ConfigError,
    Difference,
    HostError,
    Interrupted,
    Problem,
    StudyMismatch,
    TunerError,
)
from tuner.store.database import open_store
from tuner.store.place import place_of

Tuner = Callable[..., Any]
HEAVY = (
    "optuna", "pydantic", "sqlalchemy", "numpy", "yaml", "httpx", "psutil", "rich",
    "optuna_dashboard",
)  # fmt: skip


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys\n"
        "from tuner.cli.app import build_app\n"
        "try:\n    build_app()(['--help'], prog_name='tuner')\n"
        "except SystemExit as error:\n    assert error.code == 0\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert "Usage: tuner" in done.stdout
    loaded = set(done.stderr.replace("'", "").strip("[]\n").split(", "))
    assert loaded.isdisjoint(HEAVY)
    assert len(loaded) < 200


def test_python_dash_m_and_the_version() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tuner", "--version"], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, f"tuner {__version__}\n")


def test_commands_come_in_the_order_of_a_studys_life() -> None:
    command = typer.main.get_command(build_app())
    names = command.list_commands(None)  # type: ignore[attr-defined]
    assert names == [name for name in ORDER if name in names]


def test_every_command_has_an_example() -> None:
    app = build_app()
    for info in app.registered_commands:
        assert info.callback is not None
        assert "Example: tuner " in (info.callback.__doc__ or ""), info.callback.__name__


def test_a_wrong_option_is_a_usage_error(tuner: Tuner) -> None:
    found = tuner("show", "--nonsense")
    assert found.exit_code == 2
    assert "--nonsense" in found.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (HostError("the disk is full.", "Free 3 GB."), 3),
        (StudyMismatch("kimi", [], "Use another name."), 4),
        (Interrupted("interrupted.", "Continue with `tuner run kimi`."), 130),
    ],
)
def test_errors_become_exit_codes(error: TunerError, code: int) -> None:
    app = build_app()

    @app.command()
    def fail() -> None:
        raise error

    found = CliRunner().invoke(app, ["fail"])
    assert found.exit_code == code
    assert found.stdout == ""
    assert found.stderr == f"{error.message}\n  {error.hint}\n"


DIFFERENT = StudyMismatch("s", [Difference("space.topk", "[1]", "[1, 2]")], "Use --new.")
MISTAKE = Problem("s.yaml", 3, 5, "space.topk", "must be distinct, got [4, 4].", "Remove one.")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            HostError("port: must be free, got 8000 taken.", "Stop it."),
            {
                "exit_code": 3,
                "message": "port: must be free, got 8000 taken.",
                "hint": "Stop it.",
                "errors": [{"message": "port: must be free, got 8000 taken.", "hint": "Stop it."}],
                "differences": [],
            },
        ),
        (
            ConfigError([MISTAKE]),
            {
                "exit_code": 2,
                "message": "1 error, nothing was launched.",
                "hint": "",
                "errors": [
                    {
                        "file": "s.yaml",
                        "line": 3,
                        "column": 5,
                        "path": "space.topk",
                        "message": "must be distinct, got [4, 4].",
                        "hint": "Remove one.",
                    }
                ],
                "differences": [],
            },
        ),
        (
            DIFFERENT,
            {
                "exit_code": 4,
                "message": DIFFERENT.message,
                "hint": "Use --new.",
                "errors": [{"message": DIFFERENT.message, "hint": "Use --new."}],
                "differences": [{"field": "space.topk", "stored": "[1]", "present": "[1, 2]"}],
            },
        ),
    ],
)
def test_an_error_is_a_document_too(error: TunerError, expected: dict[str, Any]) -> None:
    app = build_app()

    @app.command()
    def broken(as_json: JSON = False) -> None:
        raise error

    found = CliRunner().invoke(app, ["broken", "--json"])
    assert found.exit_code == error.exit_code
    assert json.loads(found.stdout) == {"ok": False, **expected}
    assert error.message in found.stderr
    assert CliRunner().invoke(app, ["broken"]).stdout == ""


@pytest.mark.parametrize(
    "command",
    [
        ("check", "nope.yaml"),
        ("show", "nope"),
        ("run", "nope.yaml"),
        ("export", "nope"),
        ("verify", "nope"),
        ("draft", "inspect", "nope"),
        ("trouble", "no such words"),
    ],
)
def test_what_is_not_there_is_a_document_with_exit_code_2(
    tuner: Tuner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    found = tuner(*command, "--json")
    document = json.loads(found.stdout)
    assert (found.exit_code, document["ok"], document["exit_code"]) == (2, False, 2)
    assert document["errors"][0]["message"] == document["message"]
    assert "got" in document["message"] or "must be a folder" in document["message"]


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [
        (errno.ENAMETOOLONG, 2, "file name too long"),
        (errno.EISDIR, 2, "is a directory"),
        (errno.EACCES, 3, "permission denied"),
        (errno.ENOSPC, 3, "no space left on device"),
    ],
)
def test_a_path_that_the_system_refuses_is_no_defect(number: int, code: int, said: str) -> None:
    app = build_app()

    @app.command()
    def fail() -> None:
        raise OSError(number, os.strerror(number), "/some/where")

    found = CliRunner().invoke(app, ["fail"])
    assert found.exit_code == code
    assert found.stderr.splitlines() == [
        f"/some/where: must be a path that can be used, got: {said}.",
        "  Name another path, or change who may use this one.",
    ]


@pytest.mark.parametrize("error", [OSError(errno.EIO, "I/O error", "/x"), OSError("no number")])
def test_other_errors_of_the_system_are_defects(error: OSError) -> None:
    app = build_app()

    @app.command()
    def fail() -> None:
        raise error

    assert CliRunner().invoke(app, ["fail"]).exception is error


LONG = "n" * 300


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", LONG), ("check", LONG), ("check", f"{LONG}.yaml"), ("report", LONG),
        ("export", LONG), ("doctor", LONG), ("draft", "inspect", LONG), ("init", LONG),
        ("compare", LONG, "1", "2"), ("record", LONG), ("explain", LONG),
    ],
)  # fmt: skip
def test_a_name_no_file_can_have_is_a_usage_error(
    tuner: Tuner, work: Path, arguments: tuple[str, ...]
) -> None:
    found = tuner(*arguments)
    assert found.exit_code == 2
    assert "file name too long" in found.stderr or "must be" in found.stderr
    assert [*work.iterdir()] == []


def test_a_study_may_name_no_such_file_either(tuner: Tuner, work: Path, study_yaml: Tuner) -> None:
    workload = {"prompts": {"file": f"{LONG}.jsonl"}}
    text = study_yaml(space={"include": [f"{LONG}.yaml"]}, workload=workload)
    (work / "s.yaml").write_text(text)
    document = json.loads(tuner("check", "s.yaml", "--json").stdout)
    assert {error["path"] for error in document["errors"]} == {
        "space.include[0]", "workload.prompts.file",
    }  # fmt: skip


def test_control_c_is_130() -> None:
    app = build_app()

    @app.command()
    def fail() -> None:
        raise KeyboardInterrupt

    assert CliRunner().invoke(app, ["fail"]).exit_code == 130


def test_every_problem_of_a_file_is_printed() -> None:
    problems = [
        Problem("bad.yaml", 14, 9, "space.parameters.k", "must be distinct, got [1, 1].", "Fix."),
        Problem("bad.yaml", 20, 1, "", "must be a mapping, got a list."),
    ]
    assert error_lines(ConfigError(problems)) == [
        "bad.yaml:14:9: space.parameters.k: must be distinct, got [1, 1].",
        "  Fix.",
        "bad.yaml:20:1: must be a mapping, got a list.",
        "2 errors, nothing was launched.",
    ]


def test_json_never_holds_nan() -> None:
    nested = {"a": float("nan"), "b": [1.5, float("inf")], "c": (True, None)}
    assert finite(nested) == {"a": None, "b": [1.5, None], "c": [True, None]}


def test_show_by_name(tuner: Tuner, stored: str) -> None:
    found = tuner("show", stored)
    assert found.exit_code == 0
    assert found.stderr == ""
    lines = found.stdout.splitlines()
    assert lines[0] == "kimi: maximize output_tokens_per_s at c1"
    assert "Recommended: trial 5, 1.38x baseline [1.36, 1.40]." in lines


def test_show_json_is_one_document(tuner: Tuner, stored: str) -> None:
    found = tuner("show", stored, "--json")
    assert len(json.loads(found.stdout)["trials"]) == 7
    only = json.loads(tuner("show", stored, "3", "--json").stdout)
    assert only["trials"][0]["failure"] == "out_of_memory"


def test_compare_by_name(tuner: Tuner, stored: str) -> None:
    assert "Trial 5 is better" in tuner("compare", stored, "5", "0").stdout
    found = json.loads(tuner("compare", stored, "5", "0", "--json").stdout)
    assert found["verdict"] == "better"


def test_dashboard_prints_its_address_and_ends_on_control_c(stored: str) -> None:
    with open_store(place_of(stored, None).url, create=True) as store:
        optuna.create_study(study_name=stored, storage=store.optuna_storage)
    command = [sys.executable, "-m", "tuner", "dashboard", stored, "--json", "--port", "0"]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, env=env) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        document = "".join(process.stdout.readline().decode() for _ in range(3))
        assert process.stderr.readline().startswith(b"Read-only")
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0
    assert json.loads(document)["url"].startswith("http://127.0.0.1:")


def test_a_misspelt_study_creates_nothing(tuner: Tuner, stored: str, tmp_path: Path) -> None:
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    found = tuner("show", "kimy")
    assert found.exit_code == 2
    assert "Did you mean kimi?" in found.stderr
    assert tuner("show", "kimi.yaml").exit_code == 2
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before


def test_schema_is_json_schema(tuner: Tuner) -> None:
    both = json.loads(tuner("schema").stdout)
    assert set(both) == {"study", "space"}
    for kind, document in both.items():
        assert json.loads(tuner("schema", kind).stdout) == document
        jsonschema.Draft202012Validator.check_schema(document)
    assert tuner("schema", "results").exit_code == 2


def run_main(body: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    """`tuner boom`, a command that runs this body, through the real entry point."""
    script = (
        "import sys\nfrom tuner.cli import app, study\n"
        "def register(typer_app):\n    typer_app.command()(boom)\n"
        f"def boom() -> None:\n    {body}\n"
        "study.register = register\nsys.argv = ['tuner', 'boom']\napp.main()\n"
    )
    command = [sys.executable, "-c", script]
    return subprocess.run(command, capture_output=True, env={**os.environ, **env}, timeout=60)


def test_a_defect_has_an_exit_code_of_its_own() -> None:
    found = run_main("raise ZeroDivisionError('oh')")
    assert found.returncode == 70
    assert b"ZeroDivisionError: oh" in found.stderr
    assert b"This is a defect of tuner" in found.stderr


def test_a_terminal_without_utf8_still_gets_its_lines() -> None:
    found = run_main("print('1,912 \\u00b1 14')", PYTHONIOENCODING="ascii")
    assert (found.returncode, found.stdout) == (0, b"1,912 ? 14\n")


def test_study_names_are_completed(stored: str, tmp_path: Path) -> None:
    (tmp_path / "kilo.yaml").write_text("")
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "quickstart.yaml").write_text("")
    assert study_names("") == ["kilo.yaml", "kimi", "studies/quickstart.yaml"]
    assert study_names("ki") == ["kilo.yaml", "kimi"]
    assert study_names("kim") == ["kimi"]


def test_trial_numbers_are_completed(stored: str, tmp_path: Path) -> None:
    def complete(study: str, incomplete: str = "") -> list[str]:
        context = typer.Context(typer.main.get_command(build_app()))
        context.params = {"study": study}
        return trial_numbers(context, incomplete)

    for number in (0, 2, 11, 1):
        (tmp_path / "results" / stored / "trials" / f"{number:04d}").mkdir(parents=True)
    (tmp_path / "kimi.yaml").write_text("# a study\nname: kimi\n")
    assert complete(stored) == complete("kimi.yaml") == ["0", "1", "2", "11"]
    assert complete(stored, "1") == ["1", "11"]
    assert complete("") == complete("unknown") == []


def test_no_command_is_cut_short_in_the_list(
    tuner: Tuner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for arguments in ((), ("draft",), ("probe",)):
        assert "..." not in tuner(*arguments, "--help").stdout.partition("Commands:")[2]


@pytest.mark.parametrize(
    ("line", "width", "folded"),
    [
        ("short", 80, ["short"]),
        ("a long line is never folded without a terminal " * 3, None, None),
        ("  one two three four five six seven eight nine ten", 40,
         ["  one two three four five six seven", "    eight nine ten"]),
        ("x" * 50, 40, ["x" * 50]),
    ],
)  # fmt: skip
def test_lines_are_folded_between_words(
    line: str, width: int | None, folded: list[str] | None
) -> None:
    assert fold(line, width) == (folded or [line])


def test_cells_are_folded_within_their_column() -> None:
    rows = [("name", "one two three four", "end"), ("", "lightseekorg/kimi", "")]
    assert table_lines(rows, (5, 10, 4)) == [
        "name   one two     end",
        "       three four",
        "       lightseekorg/kimi",
    ]
    assert table_lines(rows[1:], (5, 10, 4), breaks_words=True) == [
        "       lightseeko",
        "       rg/kimi",
    ]
