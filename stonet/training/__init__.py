"""From a task to a trained model, and to the run folder it is stored in.

Comes in: a `Dataset` and a `Config`. Goes out: a `TrainedModel`. Start reading at `task.py`, then
`trainer.py`.
"""
