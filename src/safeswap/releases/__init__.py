"""Releases: the public bundle, its checks, the confidential record and the ledger."""
