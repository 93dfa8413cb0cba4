"""From a masked file to a public bundle and its confidential record."""
