"""Properties of logical plans: time, keys, update patterns."""
