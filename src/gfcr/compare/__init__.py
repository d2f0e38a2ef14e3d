"""Recipes against each other: equal budgets, the same seeds, each run in a process of its own.

`plan` says what runs where, `pool` runs it, `result` reads the run directories, `statistics` says how sure one can be.
"""
