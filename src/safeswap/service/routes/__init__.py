"""The features of the service: each module holds the routes, models and jobs of one of them."""
