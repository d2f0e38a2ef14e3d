"""Answers with a structure: JSON, lists, patterns."""
