"""Tasks for environments with tools: sums, computed puzzles, questions to a database, functions to write. Made, not collected."""
