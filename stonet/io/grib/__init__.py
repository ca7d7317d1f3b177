"""GRIB files, decoded by ecCodes in a helper process or, in simple packing, by stonet itself.

Input: a path. Output: `LazySource`s. Start reading at `read.py`.
"""
