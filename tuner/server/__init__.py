"""Server processes: launching, readiness, watching and verified stopping. Knows no engine."""
