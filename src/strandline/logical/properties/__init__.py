"""Properties of logical plans: time and keys."""
