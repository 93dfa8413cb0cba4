"""Figures of risk and of distortion, one file each."""
