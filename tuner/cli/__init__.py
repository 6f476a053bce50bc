"""The command line: the only place with typer and rich; everything heavy is imported lazily."""
