"""Owns two drafts side by side: what is the same, what differs, what can explain a gap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tuner.drafts.inspect import Inspection
from tuner.drafts.published import PublishedDraft
from tuner.drafts.sizes import in_words

Effect = Literal["same", "explains", "cannot explain", "unknown"]

CAPACITY = (
    "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads",
    "num_hidden_layers",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Side:
    """One draft of a comparison, whether read from a folder or from the published table."""

    name: str
    shape: Mapping[str, Any] = field(default_factory=dict)
    layer_ids: tuple[int, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    samples: float | None = None
    training: str = ""
    acceptance: tuple[float, float] | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """One property of both drafts and what its difference can do to acceptance."""

    name: str
    a: str
    b: str
    effect: Effect
    note: str = ""

    def to_json(self) -> dict[str, str]:
        """Plain values."""
        return {
            "name": self.name, "a": self.a, "b": self.b, "effect": self.effect, "note": self.note,
        }  # fmt: skip


def side_of(
    inspection: Inspection,
    *,
    name: str = "",
    samples: float | None = None,
    acceptance: tuple[float, float] | None = None,
) -> Side:
    """A draft that was read; `samples` and `acceptance` are what the user or a study knows."""
    sizes = inspection.sizes
    return Side(
        name=name or inspection.draft.folder.name,
        shape=inspection.shape,
        layer_ids=inspection.layer_ids,
        sizes={
            "total": sizes.total,
            "trainable": sizes.trainable,
            "embedding": sizes.embedding,
            "lm_head": sizes.lm_head,
        },
        samples=samples or samples_of(inspection),
        training="; ".join(f"{k} = {v}" for k, v in inspection.draft.training.items()),
        acceptance=acceptance,
        warnings=tuple(f.message for f in inspection.findings if f.severity != "info"),
    )


def samples_of(inspection: Inspection) -> float | None:
    """Training samples, where the trainer left their number beside the weights."""
    for name, value in inspection.draft.training.items():
        if name.endswith(("train_samples", "num_train_samples")):
            return float(value)
    return None


def side_of_published(draft: PublishedDraft) -> Side:
    """A draft of the shipped table."""
    samples = draft.training.get("samples")
    return Side(
        name=draft.name,
        shape=draft.shape,
        layer_ids=draft.layer_ids,
        samples=float(samples) if samples else None,
        training=str(draft.training.get("data", "")),
        acceptance=draft.range,
    )


def compare_sides(a: Side, b: Side) -> list[Row]:
    """Every property of two drafts; those that one side does not know are `unknown`."""
    return [
        *_shape_rows(a, b),
        _ids_row(a, b),
        *_size_rows(a, b),
        _data_row(a, b),
        *_warning_rows(a, b),
        _acceptance_row(a, b),
    ]


def _shape_rows(a: Side, b: Side) -> list[Row]:
    names = dict.fromkeys([*a.shape, *b.shape])
    return [_shape_row(name, a.shape.get(name), b.shape.get(name)) for name in names]


def _shape_row(name: str, a: Any, b: Any) -> Row:
    if a is None or b is None:
        return Row(name, _shown(a), _shown(b), "unknown")
    if a == b:
        return Row(name, _shown(a), _shown(b), "same")
    explains = name in CAPACITY or name == "draft_vocab_size"
    return Row(name, _shown(a), _shown(b), "explains" if explains else "cannot explain")


def _ids_row(a: Side, b: Side) -> Row:
    shown = [str(list(side.layer_ids)) if side.layer_ids else "-" for side in (a, b)]
    if not a.layer_ids or not b.layer_ids:
        return Row("captured layers", shown[0], shown[1], effect="unknown")
    if a.layer_ids == b.layer_ids:
        return Row("captured layers", shown[0], shown[1], effect="same")
    return Row(
        "captured layers", shown[0], shown[1], effect="explains",
        note="other hidden states than the other draft was trained on",
    )  # fmt: skip


def _size_rows(a: Side, b: Side) -> list[Row]:
    rows = []
    for name in ("total", "trainable"):
        one, other = a.sizes.get(name), b.sizes.get(name)
        shown = [in_words(each) if each else "-" for each in (one, other)]
        if not one or not other:
            rows.append(Row(f"parameters, {name}", shown[0], shown[1], effect="unknown"))
        elif one == other:
            rows.append(Row(f"parameters, {name}", shown[0], shown[1], effect="same"))
        else:
            rows.append(
                Row(
                    f"parameters, {name}",
                    shown[0],
                    shown[1],
                    effect="explains",
                    note=_counting_note(a, b),
                )
            )
    return rows


def _counting_note(a: Side, b: Side) -> str:
    """Two counts of one shape differ only by what is counted."""
    shared = [name for name in CAPACITY if name in a.shape and name in b.shape]
    if shared and all(a.shape[name] == b.shape[name] for name in shared):
        return "the shape is the same: the difference is what is counted or stored"
    return ""


def _data_row(a: Side, b: Side) -> Row:
    shown = [in_words(int(s.samples)) if s.samples else (s.training or "-") for s in (a, b)]
    if not a.samples or not b.samples:
        return Row("training samples", shown[0], shown[1], effect="unknown")
    more, less = max(a.samples, b.samples), min(a.samples, b.samples)
    if more / less < 1.5:
        return Row("training samples", shown[0], shown[1], effect="same")
    return Row(
        "training samples",
        shown[0],
        shown[1],
        effect="explains",
        note=f"{more / less:.0f} times more data",
    )


def _warning_rows(a: Side, b: Side) -> list[Row]:
    if not a.warnings and not b.warnings:
        return []
    shown = ["; ".join(side.warnings) or "none" for side in (a, b)]
    return [Row("wiring findings", shown[0], shown[1], effect="explains")]


def _acceptance_row(a: Side, b: Side) -> Row:
    shown = [_range(side.acceptance) for side in (a, b)]
    if a.acceptance is None or b.acceptance is None:
        return Row("acceptance length", shown[0], shown[1], effect="unknown")
    apart = a.acceptance[1] < b.acceptance[0] or b.acceptance[1] < a.acceptance[0]
    note = "" if apart else "the ranges overlap: there may be no gap to explain"
    return Row(
        "acceptance length", shown[0], shown[1], effect="unknown" if apart else "same", note=note
    )


def conclusions(a: Side, b: Side, rows: Sequence[Row]) -> list[str]:
    """What follows, in sentences: first what is ruled out, then what can explain the gap."""
    found = []
    same = [row.name for row in rows if row.name in a.shape and row.effect == "same"]
    if {*CAPACITY} & {*same} and not any(
        row.effect == "explains" for row in rows if row.name in CAPACITY
    ):
        found.append(
            f"Same architecture ({', '.join(same)}): size and shape cannot explain a gap."
        )
    found += [text for side in (a, b) if (text := counting_conventions(side))]
    data = next((row for row in rows if row.name == "training samples"), None)
    if data is not None and data.effect == "explains":
        found.append(f"{data.note}: {data.a} against {data.b}. This can explain the gap.")
    ids = next((row for row in rows if row.name == "captured layers"), None)
    if ids is not None and ids.effect == "explains":
        found.append(f"Captured layers differ: {ids.a} against {ids.b}. Check this first.")
    return found


def counting_conventions(side: Side) -> str:
    """Why one draft is quoted with several sizes: what each count includes."""
    sizes = side.sizes
    if not sizes.get("embedding") or not sizes.get("total"):
        return ""
    return (
        f"{side.name} counts {in_words(sizes['total'])} with its "
        f"{in_words(sizes['embedding'])} embedding and {in_words(sizes['lm_head'])} lm_head, "
        f"{in_words(sizes['trainable'])} trainable: figures differ by convention."
    )


def _shown(value: Any) -> str:
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def _range(value: tuple[float, float] | None) -> str:
    if value is None:
        return "-"
    return f"{value[0]:.2f}" if value[0] == value[1] else f"{value[0]:.2f}-{value[1]:.2f}"
