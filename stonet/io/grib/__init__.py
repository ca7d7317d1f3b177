"""GRIB files, decoded by ecCodes in a process of its own or, where packing is simple, by us.

Comes in: a path. Goes out: `LazySource`s. Start reading at `read.py`.
"""
