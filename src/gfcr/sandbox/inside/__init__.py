"""Modules that run inside a sandbox: standard library only, and little of it, since every import costs a run milliseconds."""
