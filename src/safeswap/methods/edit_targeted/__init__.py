"""The targeted Confidentiality Edit: every class below tolerance exchanges values with a neighbouring class."""
