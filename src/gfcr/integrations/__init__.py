"""Doors into other people's trainers. Invariant: nothing here is imported by the rooms below, and importing a package here loads
no foreign library before one of its names is used.
"""
