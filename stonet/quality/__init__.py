"""Quality control of station data (`stonet check`): statistics, checks, consistency, a figure.

Comes in: a file or a `Field`. Goes out: a report of findings, each with its remedy. Start reading
at `report.py`.
"""
