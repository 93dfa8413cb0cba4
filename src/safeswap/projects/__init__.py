"""Project files: WebSwap, ARGUS, TOML, tables of counts."""
