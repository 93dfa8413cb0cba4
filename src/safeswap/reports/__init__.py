"""HTML reports, each a self-contained file."""
