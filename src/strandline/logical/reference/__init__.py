"""The meaning of a logical plan, computed slowly and literally: the oracle of the tests."""
