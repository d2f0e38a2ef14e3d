"""Judging by a model."""
