"""Jobs: the queue, the workers, and the child processes that run jobs."""
