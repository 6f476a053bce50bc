"""Owns `tuner report`: a stored study becomes one HTML file."""

from __future__ import annotations

from pathlib import Path

from tuner.errors import UsageError
from tuner.insight.leverage import explain
from tuner.insight.report import plotly_script, render_report
from tuner.insight.sentences import recommendation_lines
from tuner.store.stored import StoredStudy


def write_report(study: StoredStudy, out: Path | None) -> Path:
    """Write the report and say where.

    Raises:
        UsageError: plotly is missing, or the file cannot be written.
    """
    path = out or Path(f"{study.name}-report.html")
    html = render_report(
        study, explain(study), recommendation_lines(study.recommendation), plotly_script()
    )
    try:
        path.write_text(html, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"--out {path}: must be a file that can be written, got: {error.strerror}.",
            "Choose another place.",
        ) from error
    return path
