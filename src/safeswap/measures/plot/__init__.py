"""The confidentiality plot: perturbation and neighbours of every record."""
