"""Code judged by running it: the `code` verifier (verifier.py)."""
