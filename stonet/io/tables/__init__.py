"""Tables of station values: CSV, Parquet and DataFrames, in long or wide format.

Input: a path or a DataFrame. Output: `LazySource`s. Start reading at `read.py`.
"""
