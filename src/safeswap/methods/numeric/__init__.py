"""Methods for numbers and for single values: rank swapping, noise, microaggregation, top and bottom coding, PRAM."""
