"""Tasks from reasoning-gym: a source, its frozen held-out sets, its scorers."""
