"""Rollouts that take turns with an environment."""
