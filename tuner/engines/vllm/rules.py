"""Owns the rule table of vLLM: which servers are not worth launching, and why."""

from __future__ import annotations

import difflib

from tuner.engines.base import Violation
from tuner.engines.vllm.arguments import NEEDS_SPECULATION
from tuner.engines.vllm.case import Case, Rule
from tuner.engines.vllm.discovery import FACTS
from tuner.engines.vllm.environment import ENVIRONMENT_RULES
from tuner.engines.vllm.spec_rules import SPEC_RULES
from tuner.engines.vllm.speculation import draft_tokens

_ONE_HOST = frozenset({"nnodes", "node-rank", "master-addr", "headless", "data-parallel-address"})
_NOT_PLAIN_HTTP = frozenset({"uds", "grpc", "ssl-keyfile", "ssl-certfile", "api-key", "root-path"})


def _installed(case: Case) -> str:
    missing = "No module named 'vllm'" in case.facts.outputs.get(FACTS, "")
    return "engine.executable must be an interpreter that has vLLM" if missing else ""


def _flags_known(case: Case) -> str:
    known = case.facts.flags
    for name in case.args.flags if known is not None else ():
        if name not in (known or ()) and name != "model":
            near = difflib.get_close_matches(name, known or (), 1)
            return f"{name} is no flag of the installed vLLM" + (
                f", did you mean {near[0]}?" if near else ""
            )
    return ""


def _one_host(case: Case) -> str:
    found = sorted(_ONE_HOST & case.args.flags.keys())
    if not found or (found == ["nnodes"] and case.args.flags["nnodes"] == 1):
        return ""
    return f"{found[0]} must be absent: servers across hosts are not launched"


def _plain_http(case: Case) -> str:
    found = sorted(_NOT_PLAIN_HTTP & case.args.flags.keys())
    return f"{found[0]} must be absent while measuring over plain HTTP" if found else ""


def _statistics(case: Case) -> str:
    if case.method and case.args.flags.get("disable-log-stats"):
        return "disable-log-stats must be absent: it removes the counters of accepted tokens"
    return ""


def _draft_slots(case: Case) -> str:
    budget, tokens = case.args.flags.get("max-num-batched-tokens"), draft_tokens(case.spec)
    if not isinstance(budget, int) or tokens is None:
        return ""
    slots = 1 if case.method == "draft_model" else 0
    if case.spec.get("parallel_drafting") or case.method in ("dflash", "dspark"):
        slots = tokens
    if budget > slots:
        return ""
    return f"max-num-batched-tokens must exceed the {slots} slots drafting needs, got {budget}"


def _lora_budget(case: Case) -> str:
    flags, tokens = case.args.flags, draft_tokens(case.spec)
    budget, seqs = flags.get("max-num-batched-tokens"), flags.get("max-num-seqs")
    if not flags.get("enable-lora") or tokens is None:
        return ""
    if not isinstance(budget, int) or not isinstance(seqs, int) or budget >= seqs * (tokens + 1):
        return ""
    return (
        "max-num-batched-tokens must be at least max-num-seqs * (num_speculative_tokens + 1) "
        f"= {seqs * (tokens + 1)} with LoRA, got {budget}"
    )


def _per_request(case: Case) -> str:
    found = sorted(NEEDS_SPECULATION & case.args.flags.keys())
    return f"{found[0]} must come with speculation" if found and not case.method else ""


SERVER_RULES = (
    Rule("installed", "The interpreter has vLLM.", "this tool", _installed,
         "Name the python or vllm of the environment it is installed in."),
    Rule("flag-known", "Every flag is one that the installed vLLM accepts.",
         "vllm/engine/arg_utils.py", _flags_known, "Correct or remove the flag."),
    Rule("one-host", "The server runs on one host.", "this tool", _one_host,
         "Tune on one host, then deploy to several."),
    Rule("plain-http", "The server answers plain HTTP on 127.0.0.1.", "this tool", _plain_http,
         "Remove the flag from engine.args and add it where you deploy."),
    Rule("statistics", "Counters of accepted tokens are not switched off.",
         "vllm/v1/metrics/loggers.py", _statistics, "Remove disable-log-stats."),
    Rule("draft-slots", "The token budget leaves room for the draft's own slots.",
         "vllm/config/vllm.py", _draft_slots, "Raise max-num-batched-tokens."),
    Rule("lora-budget", "With LoRA the token budget holds a full step of every sequence.",
         "vllm/engine/arg_utils.py", _lora_budget,
         "Raise max-num-batched-tokens or draft fewer tokens."),
    Rule("per-request-metrics", "Per-request acceptance is asked for only with speculation.",
         "vllm/config/vllm.py", _per_request, "Remove the flag."),
)  # fmt: skip

RULES: tuple[Rule, ...] = SPEC_RULES + SERVER_RULES + ENVIRONMENT_RULES
"""Every rule, in the order they are reported."""


def broken_rules(case: Case) -> list[Violation]:
    """The rules a server breaks, in table order."""
    found = ((rule, rule.check(case)) for rule in RULES)
    return [Violation(rule.name, text, rule.hint) for rule, text in found if text]


def rules_markdown() -> str:
    """The rule table as docs/rules-vllm.md holds it."""
    rows = [f"| `{r.name}` | {r.text} | `{r.source}` | {r.hint} |" for r in RULES]
    head = ["# Rules of vLLM", "", _INTRODUCTION, "", "| rule | what must hold | source | fix |",
            "|---|---|---|---|"]  # fmt: skip
    return "\n".join([*head, *rows]) + "\n"


_INTRODUCTION = """\
A server that breaks one of these is not launched; `tuner check` names the rule. Sources are
files of vLLM 0.32. Methods, fields and flags are those of the installed version, and before a
study begins the installed version's own parser is asked about every server of the space."""
