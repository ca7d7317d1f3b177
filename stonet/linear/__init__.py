"""The closed-form forecast: kriging, local polynomials, imputation of gaps, ridge regression.

Comes in: batches of windows. Goes out: a linear forecast at any point and lead. Start reading at
`regression.py`.
"""
