"""Judging SQL by what it returns."""
