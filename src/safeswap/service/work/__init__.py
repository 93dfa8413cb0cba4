"""Work: the queue, the workers and their child processes; and what the server computes while the caller waits."""
