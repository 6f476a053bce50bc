"""Measuring a running server: prompts, load, records, metrics, statistics. Knows no engine."""
