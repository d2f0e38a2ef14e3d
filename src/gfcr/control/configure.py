"""One law and one length for every rollout: the default configuration."""

from __future__ import annotations

from gfcr.context import Configuration, View
from gfcr.types import Group, Sampling


class FixedConfiguration:
    """The recipe's sampling law and longest answer."""

    def __init__(self, sampling: Sampling, max_tokens: int) -> None:
        self.how = Configuration(sampling, max_tokens)

    def configure(self, group: Group, view: View) -> Configuration:
        return self.how
