"""Owns reading Prometheus text; knows no engine's metric names.

Engines differ by version in names and labels, and builds with broken lines exist: a line that
cannot be read is skipped and counted, never an error. `_created` timestamps are not data.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

_LINE = re.compile(
    r"""(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)
        (?:\s*\{(?P<labels>(?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?
        \s+(?P<value>[^\s#]+)
        (?:\s+[-+]?\d+(?:\.\d+)?)?   # timestamp
        (?:\s*\#.*)?                 # exemplar
    """,
    re.VERBOSE | re.ASCII,
)
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)', re.ASCII)
_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[-+]?\d+)?|[-+]?(?:inf|nan)", re.I | re.A)
_ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


@dataclass(frozen=True, slots=True)
class Sample:
    """One line: a metric's value under one set of labels."""

    name: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Metrics:
    """Every readable sample of one page, and how many lines were not readable."""

    samples: tuple[Sample, ...] = ()
    bad_lines: int = 0
    _by_name: Mapping[str, list[Sample]] = field(default_factory=dict, repr=False, compare=False)

    def named(self, *names: str, **labels: str) -> list[Sample]:
        """Samples of the first of `names` (aliases) that is present, with these labels."""
        for name in names:
            if name in self._by_name:
                return [s for s in self._by_name[name] if _matches(s.labels, labels)]
        return []

    def total(self, *names: str, **labels: str) -> float | None:
        """Sum over label sets of the first alias present; None when there is none (not zero)."""
        samples = self.named(*names, **labels)
        return math.fsum(s.value for s in samples) if samples else None

    def by_label(self, label: str, *names: str, **labels: str) -> dict[str, float]:
        """Sums grouped by the values of one label, in order of appearance."""
        groups: dict[str, float] = {}
        for sample in self.named(*names, **labels):
            if label in sample.labels:
                key = sample.labels[label]
                groups[key] = groups.get(key, 0.0) + sample.value
        return groups


def parse_metrics(text: str) -> Metrics:
    """Samples of a Prometheus or OpenMetrics page; total on any text."""
    samples: list[Sample] = []
    bad_lines = 0
    by_name: dict[str, list[Sample]] = {}
    for line in _data_lines(text):
        sample = _parse_line(line)
        if sample is None:
            bad_lines += 1
        elif not sample.name.endswith("_created"):
            samples.append(sample)
            by_name.setdefault(sample.name, []).append(sample)
    return Metrics(tuple(samples), bad_lines, by_name)


def delta(before: Metrics, after: Metrics, *names: str, **labels: str) -> float | None:
    """Growth of a counter between two pages.

    A series that appears only later grew from zero. None when it is absent afterwards, when it
    fell (the server restarted in between), or when it is not a finite number.
    """
    return _growth(before.total(*names, **labels), after.total(*names, **labels))


def delta_by_label(
    before: Metrics, after: Metrics, label: str, *names: str
) -> dict[str, float] | None:
    """Growth of a counter per value of one label; None as in `delta`, {} when absent."""
    earlier = before.by_label(label, *names)
    grown = {k: _growth(earlier.get(k), v) for k, v in after.by_label(label, *names).items()}
    finite = {key: value for key, value in grown.items() if value is not None}
    return finite if len(finite) == len(grown) else None


def _growth(before: float | None, after: float | None) -> float | None:
    if after is None:
        return None
    grown = after - (before or 0.0)
    return grown if math.isfinite(grown) and grown >= 0 else None


def _data_lines(text: str) -> Iterator[str]:
    for line in text.split("\n"):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            yield stripped


def _parse_line(line: str) -> Sample | None:
    match = _LINE.fullmatch(line)
    if match is None or not _NUMBER.fullmatch(match["value"]):
        return None
    labels = _parse_labels(match["labels"] or "")
    return None if labels is None else Sample(match["name"], labels, float(match["value"]))


def _parse_labels(text: str) -> dict[str, str] | None:
    labels: dict[str, str] = {}
    position = 0
    text = text.strip()
    while position < len(text):
        match = _LABEL.match(text, position)
        if match is None:
            return None
        labels[match[1]] = re.sub(r"\\.", _unescape, match[2])
        position = match.end()
    return labels


def _unescape(match: re.Match[str]) -> str:
    return _ESCAPES.get(match[0], match[0])


def _matches(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return all(labels.get(name) == value for name, value in wanted.items())
