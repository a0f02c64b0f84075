"""Model execution: batches and rows, no jobs and no queues."""
