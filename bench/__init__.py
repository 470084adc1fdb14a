"""The benchmark suite: ``python -m bench --help``, from a checkout.

Nothing in this package imports :mod:`trio_agent` on the way to a peer: what runs in the process of a
peer needs the standard library and Trio only (for the floor beside it).
"""
