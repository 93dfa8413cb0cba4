"""What the service keeps: database, files, secrets, logs, and how they end."""
