"""Multiple choice and short words."""
