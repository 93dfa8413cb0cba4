"""Array kernels that several features share. Nothing here imports the rest of the package."""
