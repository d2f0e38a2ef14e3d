"""Killable worker processes for verifiers: worker.py (one process), serve.py (what runs in it), pool.py (several, and their queue),
cache.py (verdicts met before). `gfcr.filter.killable` makes verifiers of them."""
