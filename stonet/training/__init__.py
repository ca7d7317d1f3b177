"""A task to a trained model, and the run folder it is kept in.

Comes in: a `Dataset` and a `Config`. Goes out: a `TrainedModel`. Start reading at `task.py`, then
`trainer.py`.
"""
