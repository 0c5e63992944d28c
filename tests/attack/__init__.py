"""Attacks on the promises of the README: damage, crashes, faults and hostile input, each with a verdict."""
