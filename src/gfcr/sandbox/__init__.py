"""Runs programs that nobody vouches for, in processes that can reach nothing.

`box.py` is the trusted side; `inside/` is code that runs in the sandbox and is sent there as data. docs/verifiers/code.md has the
threat model. Light: the standard library and pydantic.
"""
