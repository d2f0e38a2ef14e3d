"""Gates, verifiers and step scorers by name."""
