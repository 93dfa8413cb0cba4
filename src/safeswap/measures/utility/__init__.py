"""How far a masked file is from the original."""
