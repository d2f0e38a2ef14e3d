"""The embedded engine: continuous batching over a Hugging Face causal LM, in this process. Imports torch."""

from gfcr.engine.embedded.engine import EmbeddedEngine
from gfcr.engine.embedded.settings import EmbeddedSettings

__all__ = ["EmbeddedEngine", "EmbeddedSettings"]
