"""Puts this folder on the path, so that tests can import the helpers beside it, and makes property tests repeatable."""

from hypothesis import settings

settings.register_profile("gfcr", max_examples=50, deadline=None, derandomize=True)
settings.load_profile("gfcr")
