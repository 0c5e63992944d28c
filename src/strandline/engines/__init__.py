"""Engines that run a pipeline: Spark, or one process without Spark."""
