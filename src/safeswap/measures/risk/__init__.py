"""How much an intruder could still learn from a masked file."""
