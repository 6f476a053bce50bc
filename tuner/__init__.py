"""tuner: finds, proves and exports the fastest speculative-decoding configuration of a server."""

__version__ = "0.1.0"
