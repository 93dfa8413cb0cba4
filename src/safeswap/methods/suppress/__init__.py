"""Local suppression: blank as little as possible so that no combination of keys is unsafe."""
