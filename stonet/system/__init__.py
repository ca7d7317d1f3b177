"""Processes, threads, devices, memory and files; nothing here depends on the domain.

Input: requests for cores, a GPU, memory, a lock or an atomic write. Output: what the machine
allows. Start reading at `resources.py`; `atomic.py` and `sandbox.py` are the safety of the files.
"""
