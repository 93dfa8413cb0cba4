"""Accounts, sessions, tokens and roles."""
