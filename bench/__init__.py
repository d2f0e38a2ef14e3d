"""Measurements, side by side in one run, as ratios. `python -m bench` lists them; nothing here is a test."""
