"""Owns the group `tuner probe`: measurements of the machine alone, without a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.doctor import MAYBE_STUDY
from tuner.cli.options import JSON

if TYPE_CHECKING:
    from tuner.host.collectives import CollectiveRow


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(help="Measure the machine without a model.", no_args_is_help=True)
    group.callback()(_group)
    group.command()(collectives)
    app.add_typer(group, name="probe")


def _group() -> None:
    """Measure the machine without a model."""


def collectives(
    study: MAYBE_STUDY = "",
    space: Annotated[
        str, typer.Option(help="A space file with NCCL variables, or shipped:NAME.yaml.")
    ] = "",
    model: Annotated[
        str, typer.Option(help="A checkpoint folder whose width gives the message sizes.")
    ] = "",
    python: Annotated[str, typer.Option(help="An interpreter that has torch.")] = "",
    ranks: Annotated[
        int, typer.Option(help="GPUs; default: all, or the study's.", min=0, show_default=False)
    ] = 0,
    size: Annotated[
        list[int] | None, typer.Option("--bytes", help="A message size; may be repeated.")
    ] = None,
    backend: Annotated[str, typer.Option(help="nccl, or gloo to try it on a CPU.")] = "nccl",
    repeats: Annotated[int, typer.Option(help="Timed all-reduces per size.", min=1)] = 50,
    timeout: Annotated[float, typer.Option(help="Seconds per environment.", min=1.0)] = 120.0,
    as_json: JSON = False,
) -> None:
    """Time all-reduce per NCCL setting.

    The messages are those of decoding and verifying. Settings that hang, give wrong sums or are
    slower at every size need no launch of a model.

    Example: tuner probe collectives studies/kimi-k2.5-eagle3-8xpcie.yaml
    """
    from tuner.cli import collectives as shown
    from tuner.cli.output import narrate, say, say_json
    from tuner.host.collectives import probe

    sizes = tuple(size or ())
    wish = shown.ProbeWish(study, space, model, python, backend, ranks, sizes, repeats, timeout)
    plan = shown.plan_probe(wish)
    count = len(plan.candidates)
    narrate(
        f"{count} environments on {plan.settings.ranks} ranks, {backend}: median time and its "
        "ratio to nothing set."
    )
    if not as_json:
        say(shown.probe_header(plan.settings))
    rows: list[CollectiveRow] = []
    for found in probe(plan.settings, plan.candidates, shown.run_worker):
        rows += found
        shown.require_reference(rows)
        if not as_json:
            say(shown.probe_line(found))
    if as_json:
        say_json(shown.probe_document(plan, rows))
    else:
        say("", *shown.ending_lines(rows))
