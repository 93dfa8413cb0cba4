"""The engine that keeps records in a Spark cluster."""
