"""Attacks on a release, run as an intruder would run them, one file each."""
