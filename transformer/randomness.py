"""One stream of random numbers for each purpose, all derived from one seed."""

import hashlib


def derive_seed(seed: int, *purpose: str | int) -> int:
    """A seed for one purpose, such as ("dropout", step); streams of different purposes are independent."""
    digest = hashlib.blake2b(repr((seed, *purpose)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
