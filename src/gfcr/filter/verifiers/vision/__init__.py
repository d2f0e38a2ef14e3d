"""Answers about images: boxes, numbers, counts, text read off."""
