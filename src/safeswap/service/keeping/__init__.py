"""Persistence: database, files, secrets, audit log, retention and backup."""
