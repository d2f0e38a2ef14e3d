"""Guidance and scaffolding: what a rollout is told beside its task.

Invariants: what comes from a task's solution or from earlier answers is in the rollout's path, in segments whose author names it
(`solution:3/9`, `examples`, ...), so that every use can be counted; a rollout that was told something about its task is GUIDED and says
nothing about the task's difficulty; tokens of guidance carry no RL loss unless a setting says so, and then as a DEMO.
"""
