"""Many candidates, their figures, the frontier and the choice."""
