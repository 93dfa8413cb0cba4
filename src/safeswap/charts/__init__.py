"""Charts: the risk-utility map, the confidentiality plot, and heat maps of distortion tables."""
