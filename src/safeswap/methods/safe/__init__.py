"""SAFE: tables in which no cell is small, and the records that tabulate to them."""
