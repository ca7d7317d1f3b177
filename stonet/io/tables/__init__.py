"""Tables of station values: CSV, Parquet and DataFrames, long or wide.

Comes in: a path or a DataFrame. Goes out: `LazySource`s. Start reading at `read.py`.
"""
