"""The names a study may use are the metrics that are measured."""

from __future__ import annotations

from tuner.config.metric_names import DIRECTIONS, metrics_to, percentile_name, unknown_metric
from tuner.measure.metrics import METRICS


def test_names_and_directions_are_those_of_the_metrics() -> None:
    assert {name: metric.direction for name, metric in METRICS.items()} == DIRECTIONS


def test_percentiles_stand_before_the_unit() -> None:
    assert percentile_name("inter_chunk_ms", 95) == "inter_chunk_p95_ms"
    assert "ttft_p99_ms" in metrics_to("minimize")
    assert "ttft_p99_ms" not in metrics_to("maximize")


def test_an_unknown_metric_gets_the_nearest_or_all() -> None:
    assert unknown_metric("ttft_p95").hint == "Did you mean ttft_p95_ms?"
    assert unknown_metric("itl").hint.startswith("Known metrics: output_tokens_per_s, ")
