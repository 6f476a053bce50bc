"""The machine: fingerprint, GPUs, topology, collectives. Knows no engine."""
