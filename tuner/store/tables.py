"""Owns our tables, which live in the same database as Optuna's; knows no connection.

Documents are kept whole as JSON text (their models in `store.record` say what they hold); the
columns beside them are there to be searched. Every name starts with `tuner_`.
"""

from __future__ import annotations

from sqlalchemy import Float, ForeignKey, Index, Integer, String, Text, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

SCHEMA_VERSION = 1


class Base(DeclarativeBase):
    """Base of our tables."""


class SchemaRow(Base):
    """Which version of these tables the database has, and which tuner made it."""

    __tablename__ = "tuner_schema"
    id: Mapped[int] = mapped_column(primary_key=True)
    version: Mapped[int]
    tuner_version: Mapped[str] = mapped_column(String(40))


class StudyRow(Base):
    """One study: what it was made with. `series` is its name before any `--new`."""

    __tablename__ = "tuner_studies"
    name: Mapped[str] = mapped_column(String(120), primary_key=True)
    series: Mapped[str] = mapped_column(String(120), index=True)
    generation: Mapped[int]
    created_utc: Mapped[str] = mapped_column(String(40))
    document: Mapped[str] = mapped_column(Text)


class TrialRow(Base):
    """One finished trial."""

    __tablename__ = "tuner_trials"
    study: Mapped[str] = mapped_column(ForeignKey("tuner_studies.name"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    state: Mapped[str] = mapped_column(String(20), index=True)
    failure: Mapped[str | None] = mapped_column(String(40))
    digest: Mapped[str] = mapped_column(String(64), index=True)
    effective_digest: Mapped[str] = mapped_column(String(64))
    value: Mapped[float | None] = mapped_column(Float)
    vs_baseline: Mapped[float | None] = mapped_column(Float)
    acceptance_length: Mapped[float | None] = mapped_column(Float)
    fingerprint: Mapped[str] = mapped_column(String(64))
    finished_utc: Mapped[str] = mapped_column(String(40))
    document: Mapped[str] = mapped_column(Text)


class LaunchRow(Base):
    """One server launch: of a trial (`search`) or of the confirmation (`confirm`)."""

    __tablename__ = "tuner_launches"
    id: Mapped[int] = mapped_column(primary_key=True)
    study: Mapped[str] = mapped_column(ForeignKey("tuner_studies.name"))
    purpose: Mapped[str] = mapped_column(String(10))
    order: Mapped[int] = mapped_column(Integer)
    trial: Mapped[int]
    round: Mapped[int | None]
    digest: Mapped[str] = mapped_column(String(64))
    failure: Mapped[str | None] = mapped_column(String(40))
    launch_s: Mapped[float] = mapped_column(Float)
    total_s: Mapped[float] = mapped_column(Float)
    document: Mapped[str] = mapped_column(Text)
    blocks: Mapped[list[BlockRow]] = relationship(
        cascade="all, delete-orphan", order_by="BlockRow.position"
    )
    __table_args__ = (UniqueConstraint("study", "purpose", "order"),)


class BlockRow(Base):
    """One block of prompts measured at one load point; `document` is all of it but requests."""

    __tablename__ = "tuner_blocks"
    id: Mapped[int] = mapped_column(primary_key=True)
    launch_id: Mapped[int] = mapped_column(ForeignKey("tuner_launches.id"), index=True)
    position: Mapped[int]
    index: Mapped[int]
    load: Mapped[str] = mapped_column(String(40))
    wall_s: Mapped[float] = mapped_column(Float)
    output_tokens: Mapped[int]
    errors: Mapped[int]
    document: Mapped[str] = mapped_column(Text)
    requests: Mapped[list[RequestRow]] = relationship(
        cascade="all, delete-orphan", order_by="RequestRow.position"
    )


class RequestRow(Base):
    """One request; chunk times stay in the raw file alone."""

    __tablename__ = "tuner_requests"
    id: Mapped[int] = mapped_column(primary_key=True)
    block_id: Mapped[int] = mapped_column(ForeignKey("tuner_blocks.id"), index=True)
    position: Mapped[int]
    prompt_id: Mapped[str] = mapped_column(String(200))
    category: Mapped[str] = mapped_column(String(80))
    ttft_ms: Mapped[float | None] = mapped_column(Float)
    e2e_ms: Mapped[float] = mapped_column(Float)
    output_tokens: Mapped[int | None]
    error: Mapped[str] = mapped_column(Text)
    document: Mapped[str] = mapped_column(Text)


class RecommendationRow(Base):
    """The end of a confirmation; the latest counts, earlier ones are history."""

    __tablename__ = "tuner_recommendations"
    id: Mapped[int] = mapped_column(primary_key=True)
    study: Mapped[str] = mapped_column(ForeignKey("tuner_studies.name"), index=True)
    verdict: Mapped[str] = mapped_column(String(20))
    finished_utc: Mapped[str] = mapped_column(String(40))
    document: Mapped[str] = mapped_column(Text)


class FingerprintRow(Base):
    """A host, engine and model as they were when something was measured."""

    __tablename__ = "tuner_fingerprints"
    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    host: Mapped[str] = mapped_column(String(255))
    document: Mapped[str] = mapped_column(Text)


class WorkerRow(Base):
    """A process that works on a shared study, and when it was last seen (the database's clock)."""

    __tablename__ = "tuner_workers"
    id: Mapped[str] = mapped_column(String(120), primary_key=True)
    study: Mapped[str] = mapped_column(String(120), index=True)
    seen_s: Mapped[float] = mapped_column(Float)
    document: Mapped[str] = mapped_column(Text)


class LeaseRow(Base):
    """One GPU (or one whole host without GPUs) leased to a worker."""

    __tablename__ = "tuner_leases"
    host: Mapped[str] = mapped_column(String(255), primary_key=True)
    device: Mapped[str] = mapped_column(String(80), primary_key=True)
    worker: Mapped[str] = mapped_column(String(120))
    study: Mapped[str] = mapped_column(String(120))
    document: Mapped[str] = mapped_column(Text)


Index("ix_tuner_launches_trial", LaunchRow.study, LaunchRow.trial)
