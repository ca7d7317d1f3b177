"""Quality control of station data (`stonet check`): statistics, checks, consistency, a figure.

Comes in: a file or a `Field`. Goes out: a report of findings with their remedy. Start reading at
`report.py`.
"""
