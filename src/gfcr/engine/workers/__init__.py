"""The embedded engine in several processes: this one and its workers. Imports torch."""

from gfcr.engine.workers.engine import WorkerEngine

__all__ = ["WorkerEngine"]
