"""What all tests share: the same examples in every run, and one thread, which is the fastest for tiny models."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before anything imports torch

from hypothesis import settings

settings.register_profile("attn", derandomize=True, deadline=None)
settings.load_profile("attn")
