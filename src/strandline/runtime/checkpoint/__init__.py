"""Checkpoint directory of a pipeline: identity, verification and repair.

identity.py   which queries a checkpoint belongs to, and its one writer
spark_log.py  Spark's offset and commit logs, read as files
records.py    batch records: what each batch has written, the links of the chain
chain.py      the chain as its one writer continues it
verify.py     the whole chain, checked before anything runs
examine.py    all problems of a checkpoint, and its last intact batch
repair.py     back to the last intact batch
replay.py     offsets of discarded batches, planned again as they were
"""
