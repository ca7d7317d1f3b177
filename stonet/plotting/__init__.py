"""Figures of fields and scores, with matplotlib but without pyplot.

Comes in: Fields and tidy records. Goes out: matplotlib figures, or PNG bytes. Start reading at
`figures.py`.
"""
