"""Runs pytest; tests that failed run once more, alone, and what fails twice fails the run.

    python tools/run_tests.py -q -m "not e2e"

Many tests start real servers and watch the clock: on a machine that stalls for a second one of
thousands may fail for no fault of the code. Those are named, never hidden: `UNSTEADY` is a fault
of the test, or of the code, that waits to be found.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

_TESTS_FAILED = 1
AT_MOST = 10
"""More failures than this are no accident: they are final."""


def failed_tests(output: str) -> list[str]:
    """Names of the tests that pytest's short summary lists as failed or in error."""
    lines = [line.split(" - ")[0] for line in output.splitlines()]
    return [
        line.split(" ", 1)[1].strip() for line in lines if line.startswith(("FAILED ", "ERROR "))
    ]


def run_pytest(arguments: Sequence[str]) -> tuple[int, str]:
    """Exit status and output, which is shown as it comes."""
    command = [sys.executable, "-m", "pytest", *arguments]
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as run:
        assert run.stdout is not None
        while piece := run.stdout.read(1):
            lines.append(piece)
            sys.stdout.write(piece)
            sys.stdout.flush()
    return run.returncode, "".join(lines)


def main(arguments: Sequence[str]) -> int:
    """The status of the first run, or of the second where there was one."""
    status, output = run_pytest(arguments)
    failed = failed_tests(output)
    if status != _TESTS_FAILED or not 0 < len(failed) <= AT_MOST:
        return status
    print(f"\n==> {len(failed)} failed: once more, alone; what fails again is final", flush=True)
    status, _ = run_pytest([*arguments, "--last-failed", "--last-failed-no-failures", "none"])
    if status == 0:
        print("\n".join(f"UNSTEADY {name}" for name in failed))
    return status


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
