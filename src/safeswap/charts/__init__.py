"""Values into pictures: the risk-utility map, and heat maps of distortion tables."""
