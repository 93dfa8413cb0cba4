"""Studies: candidates, their scores, the frontier and the choice."""
