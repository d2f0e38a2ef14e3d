"""gfcr: the rollout engine for RL post-training (Generate, Filter, Control, Replay)."""

__version__ = "0.1.0"
