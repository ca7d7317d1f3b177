"""Points to edges: neighbour search, multipole levels, and the halo that a tile needs.

Comes in: `Points`. Goes out: neighbour tables and multipole graphs. Start reading at
`neighbours.py`.
"""
