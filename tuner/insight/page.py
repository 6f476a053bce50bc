"""Owns the HTML page of a report: one file, its style, its script; knows nothing of studies.

Every text that comes in is escaped here; `Raw` marks what this package made itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, TypeAlias


class Raw(str):
    """Markup that was made here and is not escaped again."""


Cell: TypeAlias = str | Raw

STYLE = """
:root { color-scheme: light dark; --ink: #1d2430; --soft: #5b6472; --line: #d9dde3;
  --page: #ffffff; --card: #f5f7fa; --accent: #1c66b8; --good: #1b7f50; --bad: #b23a32; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --soft: #a2abb8; --line: #343c48;
  --page: #14181e; --card: #1d232c; --accent: #7db4f0; --good: #5fcf9b; --bad: #f08b83; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1040px; padding: 24px 28px 60px; background: var(--page);
  color: var(--ink); font: 15px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size: 24px; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 18px; margin: 34px 0 6px; }
p { margin: 6px 0; } .soft { color: var(--soft); }
.cards { display: grid; grid-template-columns: 1fr 1fr; gap: 14px; margin: 18px 0 6px; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: 14px 18px; overflow-wrap: anywhere; }
.card h2 { margin: 0; font-size: 13px; font-weight: 600; color: var(--soft); }
.card .big { font-size: 27px; font-weight: 650; line-height: 1.25; margin: 4px 0; }
.card ul { margin: 6px 0 0; padding-left: 18px; color: var(--soft); }
.mark { border-left: 4px solid var(--bad); padding: 6px 12px; margin: 12px 0;
  background: var(--card); }
.plot { width: 100%; min-height: 150px; } .scroll { overflow-x: auto; }
table { border-collapse: collapse; min-width: 60%; font-size: 14px; }
code { font: 0.93em ui-monospace, "DejaVu Sans Mono", monospace; }
th, td { text-align: left; padding: 5px 14px 5px 0; border-bottom: 1px solid var(--line);
  vertical-align: top; overflow-wrap: break-word; max-width: 34em; }
th { color: var(--soft); font-weight: 600; } td.num, th.num { text-align: right;
  white-space: nowrap; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: 12px 16px; overflow-x: auto; font-size: 13px; white-space: pre-wrap;
  overflow-wrap: anywhere; }
.good { color: var(--good); } .bad { color: var(--bad); }
@media (max-width: 720px) { .cards { grid-template-columns: 1fr; } body { padding: 16px; }
  .card .big { font-size: 21px; } td, th { padding-right: 8px; } }
@media print { body { max-width: none; padding: 0; font-size: 10pt; }
  h2, .soft { break-after: avoid; } .plot, .card, tr { break-inside: avoid; }
  h2 { margin-top: 20px; } .card, pre, .mark { background: none; } }
"""

PRINT_STYLE = """
@media print { :root { --ink: #111; --soft: #444; --line: #bbb; --page: #fff; --card: #fff;
  --accent: #1c66b8; --good: #1b7f50; --bad: #b23a32; color-scheme: light; } }
"""

SCRIPT = """
(function () {
  const plots = [...document.querySelectorAll('.plot')].map(place => ({
    place, doc: JSON.parse(document.getElementById(place.dataset.figure).textContent)}));
  const dark = matchMedia('(prefers-color-scheme: dark)');
  function look(layout, isDark) {
    const ink = isDark ? '#e6e9ee' : '#1d2430', line = isDark ? '#343c48' : '#d9dde3';
    const axis = {gridcolor: line, linecolor: line, zerolinecolor: line};
    return {...layout, paper_bgcolor: 'rgba(0,0,0,0)', plot_bgcolor: 'rgba(0,0,0,0)',
      font: {color: ink, size: 13, family: 'system-ui, DejaVu Sans, sans-serif'},
      margin: {l: 64, r: 16, t: 12, b: 48}, height: layout.height || 340,
      legend: {orientation: 'h', yanchor: 'bottom', y: 1.02, x: 0, traceorder: 'normal'},
      hovermode: 'closest',
      xaxis: {...axis, ...layout.xaxis}, yaxis: {...axis, ...layout.yaxis}};
  }
  function draw(isDark) {
    for (const {place, doc} of plots)
      Plotly.react(place, doc.data, look(doc.layout, isDark),
        {displaylogo: false, responsive: true, displayModeBar: false});
  }
  draw(dark.matches);
  dark.addEventListener('change', () => draw(dark.matches));
  addEventListener('beforeprint', () => draw(false));
  addEventListener('afterprint', () => draw(dark.matches));
  document.documentElement.dataset.drawn = String(plots.length);
})();
"""


def render_page(title: str, body: Iterable[str], script: str) -> str:
    """The whole document; `script` is plotly.js, inlined so that nothing is fetched."""
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}{PRINT_STYLE}</style></head><body>",
            *body,
            f"<script>{script}</script>",
            f"<script>{SCRIPT}</script>",
            "</body></html>\n",
        ]
    )


def text(value: Cell) -> str:
    """The value as markup: escaped unless it was made here; `words` in backticks are code."""
    if isinstance(value, Raw):
        return value
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(str(value)))


def paragraph(value: Cell, style: str = "") -> Raw:
    """One paragraph."""
    kind = f' class="{style}"' if style else ""
    return Raw(f"<p{kind}>{text(value)}</p>")


def section(title: str, *parts: str) -> Raw:
    """A titled part of the page, kept together on paper; empty without content."""
    inner = "".join(part for part in parts if part)
    return Raw(f"<section><h2>{escape(title)}</h2>{inner}</section>" if inner else "")


def table(head: Sequence[str], rows: Iterable[Sequence[Cell]], numbers: Sequence[int] = ()) -> Raw:
    """A table; columns in `numbers` are aligned right. Empty without rows."""

    def row(cells: Sequence[Cell], tag: str) -> str:
        kinds = (' class="num"' if place in numbers else "" for place in range(len(cells)))
        marked = (f"<{tag}{k}>{text(c)}</{tag}>" for c, k in zip(cells, kinds, strict=True))
        return f"<tr>{''.join(marked)}</tr>"

    lines = [row(cells, "td") for cells in rows]
    if not lines:
        return Raw("")
    body = "".join(lines)
    return Raw(f'<div class="scroll"><table>{row(head, "th")}{body}</table></div>')


def listing(value: str) -> Raw:
    """Text as it is, in a box."""
    return Raw(f"<pre>{escape(value)}</pre>")


def card(title: str, big: Cell, lines: Iterable[Cell]) -> Raw:
    """A box with one large statement and what supports it."""
    items = "".join(f"<li>{text(line)}</li>" for line in lines)
    below = f"<ul>{items}</ul>" if items else ""
    return Raw(
        f'<div class="card"><h2>{escape(title)}</h2><p class="big">{text(big)}</p>{below}</div>'
    )


def plot(key: str, document: Mapping[str, Any]) -> Raw:
    """The place of a chart with its data, in which no markup can begin."""
    data = json.dumps(document, allow_nan=False).replace("<", "\\u003c")
    return Raw(
        f'<div class="plot" data-figure="figure-{key}"></div>'
        f'<script type="application/json" id="figure-{key}">{data}</script>'
    )
