"""How Spark starts fast and quietly: Java, its JVM, warm workers, settings."""
