"""The study YAML and the space YAML, validated and frozen. pydantic and yaml stay here."""
