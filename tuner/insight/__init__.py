"""What the measurements mean: where the time goes, which lever is largest, the report."""
