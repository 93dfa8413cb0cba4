"""Reports in HTML, each one file that needs nothing else."""
