"""Checkpoint directory of a pipeline: identity, verification and repair.

identity.py   which queries a checkpoint belongs to, and its one writer
spark_log.py  Spark's offset and commit logs, read as files
verify.py     the whole chain, checked before anything runs
repair.py     back to the last batch that is whole
"""
