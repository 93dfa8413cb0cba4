"""Jobs: the queue, the workers, and the processes that do the work."""
