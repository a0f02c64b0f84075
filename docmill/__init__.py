"""docmill's client: submit documents, read answers."""
