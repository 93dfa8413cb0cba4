"""Migrations of the database, one file per step, taken by :mod:`safeswap.service.keeping.migrate`."""
