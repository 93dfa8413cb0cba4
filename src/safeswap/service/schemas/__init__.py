"""Request and response models, from which the API contract is generated."""
