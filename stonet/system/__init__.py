"""Processes, threads, devices, memory and files: nothing of the domain.

Comes in: requests for cores, devices, memory or a safe write. Goes out: what the machine allows.
Start reading at `resources.py`.
"""
