"""The llama.cpp adapter: any `llama-server`, or the bundled one; see `engine` for the class."""

from tuner.engines.llamacpp.engine import LlamacppEngine

__all__ = ["LlamacppEngine"]
