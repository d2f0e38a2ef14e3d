"""Final answers in mathematics: found, read in full, compared exactly (docs/verifiers/math.md)."""
