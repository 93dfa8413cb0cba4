"""Project files of other tools and of ours: WebSwap, ARGUS, TOML, tables of counts."""
