"""How the tables came to be what they are, one step per file; :mod:`safeswap.service.migrate` takes the steps."""
