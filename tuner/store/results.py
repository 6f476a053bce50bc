"""Owns the results folder of a study: raw files, written whole or not at all.

    results/NAME/
      identity.json           what the study was made with
      study.json              the study's name and where its database is
      study.db                the default database
      run.lock                one tuner at a time
      trials/0007/            record.json  blocks.jsonl.gz  server.log  server.json
      confirm/0003/           launch.json  blocks.jsonl.gz  server.log  server.json
      untimed/NAME/           report.json  server.log  nccl.*.log
      deploy/                 the exported server
      generation-2/           the same again for a study restarted with `--new`

`record.json` is written last: a trial folder that has one is complete. Knows no database.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from tuner.errors import StoreError
from tuner.measure.records import Block
from tuner.store.blocks import blocks_from_lines, blocks_to_lines
from tuner.store.files import file_errors, make_folder, read_gzip, write_gzip, write_text
from tuner.store.lock import run_lock
from tuner.store.plain import dump_json
from tuner.store.record import ConfirmationLaunch, TrialRecord, record_text

RECORD = "record.json"
IDENTITY = "identity.json"
LAUNCH = "launch.json"
BLOCKS = "blocks.jsonl.gz"

_Stored = TypeVar("_Stored", TrialRecord, ConfirmationLaunch)


@dataclass(frozen=True, slots=True)
class ResultsFolder:
    """The raw files of one study; `generation` counts restarts with `--new`."""

    root: Path
    generation: int = 1

    @property
    def base(self) -> Path:
        """Where this generation's trials are."""
        return self.root if self.generation == 1 else self.root / f"generation-{self.generation}"

    @property
    def study_db(self) -> Path:
        """The default database file, shared by all generations."""
        return self.root / "study.db"

    @property
    def deploy_folder(self) -> Path:
        """Where the exported server goes by default."""
        return self.base / "deploy"

    def trial_folder(self, number: int, *, create: bool = True) -> Path:
        """The folder of one trial's raw files."""
        return self._folder("trials", number, create)

    def confirm_folder(self, order: int, *, create: bool = True) -> Path:
        """The folder of one confirmation launch's raw files."""
        return self._folder("confirm", order, create)

    def untimed_folder(self, name: str) -> Path:
        """The folder of an untimed launch's raw files."""
        folder = self.base / "untimed" / name
        make_folder(folder)
        return folder

    def _folder(self, kind: str, number: int, create: bool) -> Path:
        folder = self.base / kind / f"{number:04d}"
        if create:
            make_folder(folder)
        return folder

    @contextlib.contextmanager
    def lock(self, *, shared: bool = False) -> Iterator[None]:
        """Hold the run lock; raises HostError naming the process that has it."""
        with run_lock(self.root / "run.lock", shared=shared):
            yield

    # ---- whose files these are ---------------------------------------------------------------
    def write_identity(self, document: Mapping[str, Any]) -> None:
        """Say which study the raw files belong to, and what it was made with."""
        write_text(self.base / IDENTITY, dump_json(document, indent=1) + "\n")

    def read_identity(self) -> dict[str, Any] | None:
        """What `write_identity` left; None for a fresh folder."""
        path = self.base / IDENTITY
        try:
            return dict(json.loads(path.read_text()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            raise StoreError(
                f"{path}: must say whose files these are, got: {error}.",
                f"Move {self.base} away and run again.",
            ) from error

    # ---- trials ------------------------------------------------------------------------------
    def write_trial(self, record: TrialRecord, blocks: Sequence[Block] = ()) -> None:
        """Make a finished trial durable: blocks first, the record last."""
        folder = self.trial_folder(record.number)
        if blocks:
            write_gzip(folder / BLOCKS, blocks_to_lines(blocks))
        write_text(folder / RECORD, record_text(record, indent=1) + "\n")

    def read_trial(self, number: int) -> TrialRecord | None:
        """The stored record; None when the trial never finished.

        Raises:
            StoreError: the file is there and cannot be understood.
        """
        path = self.trial_folder(number, create=False) / RECORD
        return _parse(path, TrialRecord)

    def read_blocks(self, number: int) -> list[Block]:
        """Every block of a trial with its requests in full; [] when none were kept."""
        return _read_blocks(self.trial_folder(number, create=False) / BLOCKS)

    def set_aside(self, number: int) -> None:
        """Rename an unreadable record so that its trial counts as never finished."""
        path = self.trial_folder(number, create=False) / RECORD
        with file_errors(path):
            path.replace(path.with_suffix(".json.damaged"))

    def trial_numbers(self) -> list[int]:
        """Numbers of all finished trials on disk, in order."""
        return _numbers(self.base / "trials", RECORD)

    # ---- confirmation ------------------------------------------------------------------------
    def write_confirmation(self, launch: ConfirmationLaunch, blocks: Sequence[Block] = ()) -> None:
        """Make a confirmation launch durable."""
        folder = self.confirm_folder(launch.order)
        if blocks:
            write_gzip(folder / BLOCKS, blocks_to_lines(blocks))
        write_text(folder / LAUNCH, record_text(launch, indent=1) + "\n")

    def confirmations(self) -> list[ConfirmationLaunch]:
        """All finished confirmation launches on disk, in order."""
        paths = [
            self.confirm_folder(order, create=False) / LAUNCH
            for order in _numbers(self.base / "confirm", LAUNCH)
        ]
        return [launch for path in paths if (launch := _parse(path, ConfirmationLaunch))]

    def read_confirm_blocks(self, order: int) -> list[Block]:
        """Every block of a confirmation launch; [] when none were kept."""
        return _read_blocks(self.confirm_folder(order, create=False) / BLOCKS)


def _numbers(folder: Path, marker: str) -> list[int]:
    found = folder.glob(f"[0-9]*/{marker}")
    return sorted(int(path.parent.name) for path in found if path.parent.name.isdigit())


def _parse(path: Path, model: type[_Stored]) -> _Stored | None:
    try:
        return model.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise StoreError(
            f"{path}: must hold a stored {model.__name__}, got: {str(error).splitlines()[0]}.",
            f"Move {path.parent} away; the trial will be measured again.",
        ) from error


def _read_blocks(path: Path) -> list[Block]:
    try:
        return blocks_from_lines(read_gzip(path))
    except FileNotFoundError:
        return []
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"{path}: must hold measured blocks, got: {error}.", "Move the file away."
        ) from error
