"""What stands in an answer's text: its spoken part, stated answers, fenced blocks, JSON values."""
