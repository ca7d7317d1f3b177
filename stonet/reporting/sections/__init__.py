"""Sections of the report, one file each: a function from `Results` to a `Section`.

Comes in: `stonet.reporting.results.Results`, and the shared `Canvas` of the maps. Goes out: titles,
texts, tables and drawings (`stonet.reporting.blocks`). Start reading at `scores.py`.
"""
