"""Owns what the installed SGLang says about itself: version and accepted flags.

Flags are discovered from `--help`, never assumed; names of other versions are suggested from a
table of renamed flags and by similarity.
"""

from __future__ import annotations

import difflib
import re

from tuner.args import ServerArgs
from tuner.engines.base import EngineFacts, Violation
from tuner.engines.sglang import flags as F

_OPTION = re.compile(r"(?<![\w-])--([a-z0-9][a-z0-9-]*)")
_USAGE_END = re.compile(r"\n\s*\n")
_DEFINED = re.compile(r"^ {2}(--?[A-Za-z].*)$", re.M)
_VERSION = re.compile(r"^(?:sglang[ =]+)?v?(\d+\.\d+(?:\.\d+)?[\w.+-]*)\s*$", re.M)

OURS = frozenset({"host", "port"})
"""Flags that the tuner sets itself."""


def parse_help(text: str) -> frozenset[str] | None:
    """Long options of a help text, canonical spelling and aliases; None when it holds none.

    Options are taken from the usage block and from lines that define an option, not from prose.
    """
    usage = text.find("usage:")
    if usage < 0:
        return None
    end = _USAGE_END.search(text, usage)
    block = text[usage : end.start() if end else len(text)]
    defined = "\n".join(_DEFINED.findall(text))
    names = set(_OPTION.findall(block)) | set(_OPTION.findall(defined))
    return frozenset(names) or None


def parse_version(text: str) -> str:
    """The version that `sglang.__version__` printed, "" when there is none."""
    found = _VERSION.findall(text)
    return str(found[-1]) if found else ""


def facts_from(help_text: str, version_text: str, outputs: dict[str, str]) -> EngineFacts:
    """Facts from both commands' outputs."""
    return EngineFacts(
        version=parse_version(version_text), flags=parse_help(help_text), outputs=outputs
    )


def unknown_flags(args: ServerArgs, facts: EngineFacts) -> list[Violation]:
    """Flags that this SGLang does not have, each with what it may have meant."""
    if facts.flags is None:
        return []
    known = facts.flags | {F.spelled(name) for name in facts.flags}
    missing = [name for name in args.flags if name not in known and not _abbreviates(name, known)]
    return [_unknown(name, facts) for name in missing]


def _abbreviates(name: str, known: frozenset[str]) -> bool:
    """argparse takes an unambiguous prefix for the option itself."""
    return sum(other.startswith(name) for other in known) == 1


def _unknown(name: str, facts: EngineFacts) -> Violation:
    flags = facts.flags or frozenset()
    near = difflib.get_close_matches(name, flags, n=1, cutoff=0.7)
    meant = F.RENAMED.get(name) or (near[0] if near else "")
    version = f"SGLang {facts.version}" if facts.version else "this SGLang"
    hint = f"Did you mean {meant}?" if meant else "Remove it."
    return Violation("flag-known", f"{name} is not a flag of {version}", hint)
