"""Pure functions on arrays; nothing in here knows of the rest of the package."""
