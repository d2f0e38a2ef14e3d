"""The command line: the outermost room; nothing imports from it."""
