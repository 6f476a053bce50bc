"""Owns what NCCL's own log says: which variables it read, how it talks, what it chose.

Reads text of NCCL_DEBUG=INFO with the subsystems of `DEBUG`. Knows no server and starts none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tuner.config.environment import is_nccl

DEBUG: Mapping[str, str] = {
    "NCCL_DEBUG": "INFO",
    "NCCL_DEBUG_SUBSYS": "INIT,ENV,GRAPH,P2P,SHM,NET,TUNING",
}
"""Every call of a collective is logged: nothing that is timed may have this."""

SMALL = 1 << 20
"""Decoding and verifying reduce at most so many bytes."""

_ALGORITHMS = ("Tree", "Ring", "CollnetDirect", "CollnetChain", "NVLS", "NVLSTree", "PAT")
_PROTOCOLS = ("LL", "LL128", "Simple")
"""In the order of NCCL's own numbers, which versions before 2.24 log instead of names."""

_VERSION = re.compile(r"NCCL version (\d+\.\d+[\w.+-]*)")
_READ = re.compile(r"\b(NCCL_[A-Z0-9_]+) set by environment to (.*?)\.?\s*$", re.M)
_INVALID = re.compile(r"Invalid value (\S*) for (NCCL_[A-Z0-9_]+)")
_CHANNEL = re.compile(r"Channel \d+(?:/\d+)? ?: .*? via (\w+(?:/[\w ]+)?)", re.M)
_CHOICE = re.compile(
    r"(?:(\w+): +)?(\d+) Bytes -> Algo (\w+) proto (\w+)(?: time| channel|\s*$)", re.M
)
_RANKS = re.compile(r"\bn[rR]anks (\d+)")
_NETWORK = re.compile(r"Using network ([\w/-]+)")
_WARN = re.compile(r"NCCL WARN (.+)")


@dataclass(frozen=True, slots=True)
class Choice:
    """Algorithm and protocol of one collective, from its smallest to its largest message.

    `collective` is "" where the version does not log it (before 2.22).
    """

    collective: str
    algorithm: str
    protocol: str
    smallest: int
    largest: int

    def __str__(self) -> str:
        sizes = f"{self.smallest}" if self.smallest == self.largest else (
            f"{self.smallest} to {self.largest}"
        )  # fmt: skip
        name = self.collective or "collectives"
        return f"{name} of {sizes} bytes: {self.algorithm} {self.protocol}"


@dataclass(frozen=True, slots=True)
class NcclReport:
    """What one server's NCCL said; everything is empty when it said nothing.

    Args:
        version: NCCL's.
        ranks: of its largest communicator.
        read: variables it says it took from the environment, as it understood them.
        invalid: values it did not understand; it goes on with its default.
        transports: channels by transport, such as `P2P/CUMEM` or `SHM/direct`.
        network: what it uses between machines.
        choices: what it used for which messages.
        warnings: its own.
    """

    version: str = ""
    ranks: int = 0
    read: Mapping[str, str] = field(default_factory=dict)
    invalid: Mapping[str, str] = field(default_factory=dict)
    transports: Mapping[str, int] = field(default_factory=dict)
    network: str = ""
    choices: tuple[Choice, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def has_spoken(self) -> bool:
        """True when NCCL logged anything of its own."""
        return bool(self.version or self.ranks or self.read or self.choices)

    @property
    def summary(self) -> str:
        """One line: version, ranks, transports, what reduces the small messages."""
        parts = [f"NCCL {self.version or 'of unknown version'}", f"{self.ranks} ranks"]
        parts += [f"{n} channels via {name}" for name, n in sorted(self.transports.items())]
        parts += [str(choice) for choice in self.choices if _reduces_small(choice)][:3]
        return ", ".join(parts)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return asdict(self)


def parse_nccl_log(text: str) -> NcclReport:
    """What a log of NCCL says; the logs of several ranks may follow each other."""
    version = _VERSION.search(text)
    network = _NETWORK.search(text)
    transports: dict[str, int] = {}
    for name in _CHANNEL.findall(text):
        transports[name.strip()] = transports.get(name.strip(), 0) + 1
    return NcclReport(
        version=version[1] if version else "",
        ranks=max((int(n) for n in _RANKS.findall(text)), default=0),
        read=dict(_READ.findall(text)),
        invalid={name: value for value, name in _INVALID.findall(text)},
        transports=transports,
        network=network[1] if network else "",
        choices=_choices(text),
        warnings=tuple(dict.fromkeys(line.strip() for line in _WARN.findall(text)))[:20],
    )


def _choices(text: str) -> tuple[Choice, ...]:
    sizes: dict[tuple[str, str, str], list[int]] = {}
    for collective, size, algorithm, protocol in _CHOICE.findall(text):
        key = (collective, _named(algorithm, _ALGORITHMS), _named(protocol, _PROTOCOLS))
        sizes.setdefault(key, []).append(int(size))
    return tuple(Choice(*key, min(found), max(found)) for key, found in sorted(sizes.items()))


def _named(word: str, names: tuple[str, ...]) -> str:
    if word.isdigit():
        return names[int(word)] if int(word) < len(names) else word
    return next((name for name in names if name.lower() == word.lower()), word)


def findings(report: NcclReport, asked: Mapping[str, str | None]) -> list[str]:
    """Where what was asked for did not take effect, one sentence each; [] when it all did.

    Args:
        report: of a server that ran with these variables.
        asked: its environment; None: removed.
    """
    wanted = {name: value for name, value in sorted(asked.items()) if is_nccl(name) and value}
    if not wanted:
        return []
    if not report.has_spoken:
        return ["NCCL logged nothing: the server does not use it, so its variables do nothing"]
    found = [text for name, value in wanted.items() if (text := _unread(report, name, value))]
    found += _other_choices(report, wanted)
    bypass = _bypass(report)
    return [*found, f"{bypass}, so {', '.join(wanted)} may do nothing"] if bypass else found


def _unread(report: NcclReport, name: str, value: str) -> str:
    if name in report.invalid:
        return f"NCCL did not understand {name}={value} and uses its default"
    if name not in report.read:
        return f"NCCL did not say that it read {name}: nothing here uses it, or it is unknown"
    read = report.read[name]
    is_level = value.isdigit() and not read.isdigit()  # a level's number is logged as a word
    if is_level or _plain(read) == _plain(value):
        return ""
    return f"NCCL read {name}={value} as {read}"


def _plain(value: str) -> str:
    return str(int(value)) if value.isdecimal() else value.lower()


def _other_choices(report: NcclReport, wanted: Mapping[str, str]) -> Iterable[str]:
    """All-reduces that use something else than the one algorithm or protocol asked for."""
    for name, kind in (("NCCL_ALGO", "algorithm"), ("NCCL_PROTO", "protocol")):
        value = wanted.get(name, "")
        if not value.isalnum():  # a list, an exclusion, or one per collective: a free choice
            continue
        for choice in report.choices:
            used = getattr(choice, kind)
            if choice.collective in {"", "AllReduce"} and used.lower() != value.lower():
                yield f"{name}={value} was asked for, and {choice}"


def _bypass(report: NcclReport) -> str:
    """That small messages are reduced by something else, where the log can tell."""
    names = {choice.collective for choice in report.choices}
    if not report.choices or "" in names or any(map(_reduces_small, report.choices)):
        return ""
    return f"no all-reduce of up to {SMALL} bytes went through NCCL"


def _reduces_small(choice: Choice) -> bool:
    return choice.collective in {"", "AllReduce"} and choice.smallest <= SMALL
