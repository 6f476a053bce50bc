"""vLLM: its adapter (`engine`) and the parts it is made of. Imports nothing of vLLM itself."""

from tuner.engines.vllm.engine import VllmEngine

__all__ = ["VllmEngine"]
