"""What drives a pipeline: Spark, or one process without Spark."""
