"""Mask, compare and count Parquet files on any engine, without holding them whole."""
