"""Owns turning records into rows of our tables and back; opens no connection."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict

from tuner.measure.records import Block, RequestRecord
from tuner.store.blocks import block_from_json, block_to_json
from tuner.store.plain import clean_text, dump_json
from tuner.store.record import ConfirmationLaunch, TrialRecord, record_text
from tuner.store.tables import BlockRow, LaunchRow, RequestRow, TrialRow


def trial_row(study: str, record: TrialRecord) -> TrialRow:
    """The row of one finished trial."""
    return TrialRow(
        study=study,
        number=record.number,
        state=record.state,
        failure=record.failure,
        digest=record.digest,
        effective_digest=record.effective_digest,
        value=finite(record.value),
        vs_baseline=finite(record.vs_baseline),
        acceptance_length=finite(record.acceptance_length),
        fingerprint=record.fingerprint,
        finished_utc=record.finished_utc,
        document=record_text(record),
    )


def search_launch(study: str, record: TrialRecord, blocks: Sequence[Block]) -> LaunchRow:
    """The launch that a trial cost, with its blocks."""
    return LaunchRow(
        study=study,
        purpose="search",
        order=record.number,
        trial=record.number,
        round=None,
        digest=record.digest,
        failure=record.failure,
        launch_s=record.seconds.launch,
        total_s=record.seconds.total,
        document=dump_json({"log_path": record.log_path, "worker": record.worker}),
        blocks=block_rows(blocks),
    )


def confirm_launch(study: str, launch: ConfirmationLaunch, blocks: Sequence[Block]) -> LaunchRow:
    """A launch of the confirmation, with its blocks."""
    return LaunchRow(
        study=study,
        purpose="confirm",
        order=launch.order,
        trial=launch.trial,
        round=launch.round,
        digest=launch.digest,
        failure=launch.failure,
        launch_s=launch.seconds.launch,
        total_s=launch.seconds.total,
        document=record_text(launch),
        blocks=block_rows(blocks),
    )


def block_rows(blocks: Sequence[Block]) -> list[BlockRow]:
    """Rows of blocks in the order they were measured."""
    return [_block_row(position, block) for position, block in enumerate(blocks)]


def _block_row(position: int, block: Block) -> BlockRow:
    document = block_to_json(block)
    del document["records"]
    return BlockRow(
        position=position,
        index=block.index,
        load=block.load.label,
        wall_s=block.wall_s,
        output_tokens=sum(record.output_tokens or 0 for record in block.records),
        errors=sum(not record.ok for record in block.records),
        document=dump_json(document),
        requests=[_request_row(i, record) for i, record in enumerate(block.records)],
    )


def _request_row(position: int, record: RequestRecord) -> RequestRow:
    document = {**asdict(record), "chunk_s": []}
    first = record.first_s
    return RequestRow(
        position=position,
        prompt_id=clean_text(record.prompt_id, 200),
        category=clean_text(record.category, 80),
        ttft_ms=None if first is None else finite(1000.0 * (first - record.sent_s)),
        e2e_ms=1000.0 * (record.end_s - record.sent_s),
        output_tokens=record.output_tokens,
        error=clean_text(record.error),
        document=dump_json(document),
    )


def block_of(row: BlockRow) -> Block:
    """The block of a row with its requests; chunk times are empty here (see the raw file)."""
    document = json.loads(row.document)
    document["records"] = [json.loads(request.document) for request in row.requests]
    return block_from_json(document)


def finite(value: float | None) -> float | None:
    """The number, or None where it is no finite one."""
    return value if value is not None and math.isfinite(value) else None
