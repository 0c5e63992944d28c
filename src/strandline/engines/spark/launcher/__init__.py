"""Fast and quiet start of Spark: Java, the JVM, warm workers, settings."""
