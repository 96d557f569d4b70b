"""How the vectors, written for the reference, are put to this program: the only place that translates.

It may translate, never skip. A case whose expectation we do not meet on purpose is listed, with its reason, in
`DEVIATIONS.md`; `tests/unit/test_vectors.py` fails for a deviation that is not listed and for a listed one that no longer
deviates.
"""
