"""The Confidentiality Edit of the 1990 census: sampled households exchange areas with others of their key."""
