"""Key/value storage for attention: tensors, keys and tiers, no queues and no model names."""
