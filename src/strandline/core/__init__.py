"""Foundations for every layer: errors, types, time, durable files, security, logging."""
