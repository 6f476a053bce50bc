"""Owns the group `tuner draft`: what a draft checkpoint is, and how two of them differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.options import JSON

if TYPE_CHECKING:
    from tuner.drafts.compare import Side
    from tuner.drafts.inspect import Inspection

WIDE = 120
"""Columns of a comparison that goes to a file or pipe."""

FOLDER = typer.Argument(metavar="DIR", help="A checkpoint folder, or a name in the HF cache.")
EITHER = typer.Argument(metavar="DRAFT", help="A checkpoint folder, or a published draft's name.")


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(help="Inspect and compare draft models.", no_args_is_help=True)
    group.command()(inspect)
    group.command()(compare)
    app.add_typer(group, name="draft")


def inspect(
    folder: Annotated[str, FOLDER],
    target: Annotated[str, typer.Option(help="The target model it drafts for.")] = "",
    context: Annotated[
        int, typer.Option(help="Longest prompt + answer, tokens.", show_default=False)
    ] = 0,
    as_json: JSON = False,
) -> None:
    """Name what is wrong with a draft before a GPU is touched.

    Example: tuner draft inspect /models/eagle3 --target /models/Kimi-K2.5-INT4
    """
    from tuner.cli.output import say, say_json
    from tuner.drafts.inspect import inspect_draft

    found = inspect_draft(folder, target or None, context_tokens=context or None)
    if as_json:
        say_json(found.to_json())
    else:
        say(*inspection_lines(found))


def inspection_lines(found: Inspection) -> list[str]:
    """The screen of `draft inspect`."""
    from tuner.drafts.sizes import in_words

    sizes = found.sizes
    shape = ", ".join(f"{name} {value:,}" for name, value in found.shape.items())
    lines = [
        f"{found.draft.folder}",
        f"  method        {found.method} ({found.draft.architecture or 'no architecture'})",
        f"  shape         {shape or 'unknown'}",
        f"  parameters    {in_words(sizes.total)} in all, {in_words(sizes.trainable)} trainable, "
        f"{in_words(sizes.without_embeddings)} without embeddings"
        + (" (from config.json)" if sizes.is_estimate else ""),
        *(f"                {line}" for line in sizes.arithmetic),
    ]
    if found.capture:
        outputs = ", ".join("embedding" if o < 0 else str(o) for o in found.capture.outputs)
        lines.append(f"  layer ids     {list(found.capture.ids)}: {found.capture.rule}")
        lines.append(f"                SGLang captures the outputs of layers {outputs}")
    lines += [f"  training      {name} = {value}" for name, value in found.draft.training.items()]
    for finding in found.findings:
        lines.append(f"  {finding.severity:<8}      {finding.message}")
        lines += [f"                {finding.hint}"] if finding.hint else []
    if not found.findings:
        lines.append("  No finding: nothing here explains a low acceptance.")
    return lines


def compare(
    a: Annotated[str, EITHER],
    b: Annotated[str, EITHER],
    samples: Annotated[
        list[float] | None,
        typer.Option(help="Training samples of A (given twice: of A and B), where you know them."),
    ] = None,
    acceptance: Annotated[
        list[float] | None,
        typer.Option(help="Measured acceptance length of A (given twice: of A and B)."),
    ] = None,
    as_json: JSON = False,
) -> None:
    """Two drafts side by side, and what can explain a gap.

    Example: tuner draft compare ./ours AQ-MedAI/Kimi-K2-Instruct-eagle3 --samples 37000
    """
    from tuner.cli.output import say, say_json, table_lines, width
    from tuner.drafts.compare import compare_sides, conclusions

    left = _side(a, _at(samples, 0), _at(acceptance, 0))
    right = _side(b, _at(samples, 1), _at(acceptance, 1))
    rows = compare_sides(left, right)
    ends = conclusions(left, right, rows)
    if as_json:
        say_json({"rows": [row.to_json() for row in rows], "conclusions": ends})
        return
    table = [("", left.name, right.name, "")]
    table += [(r.name, r.a, r.b, f"{r.effect}{': ' + r.note if r.note else ''}") for r in rows]
    widths = comparison_widths(table, width() or WIDE)
    say(*table_lines(table, widths, breaks_words=True), "", *ends)


def comparison_widths(table: list[tuple[str, str, str, str]], columns: int) -> list[int]:
    """Widths of the columns: names as they are, both drafts at most a share of the rest."""
    name = max(len(row[0]) for row in table)
    most = max(16, (columns - name - 6) // 3)
    sides = [min(most, max(len(row[side]) for row in table)) for side in (1, 2)]
    return [name, *sides, max(16, columns - name - sum(sides) - 6)]


def _at(values: list[float] | None, place: int) -> float | None:
    return values[place] if values and place < len(values) else None


def _side(text: str, samples: float | None, acceptance: float | None) -> Side:
    from dataclasses import replace

    from tuner.drafts.compare import side_of, side_of_published
    from tuner.drafts.inspect import inspect_draft
    from tuner.drafts.published import find_published

    measured = (acceptance, acceptance) if acceptance else None
    published = find_published(text)
    if published is not None:
        side = side_of_published(published)
        return replace(
            side, samples=samples or side.samples, acceptance=measured or side.acceptance
        )
    return side_of(inspect_draft(text), samples=samples, acceptance=measured)
