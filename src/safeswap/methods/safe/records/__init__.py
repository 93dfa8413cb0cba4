"""SAFE on records: change the fewest records so that every table comes out safe."""
