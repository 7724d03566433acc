"""Where downloads and encoded corpora are kept between runs."""

import os
from pathlib import Path

import platformdirs


def cache_folder() -> Path:
    """`ATTN_CACHE_DIR`, or the user's cache folder for `attn`; it need not exist yet."""
    return Path(os.environ.get("ATTN_CACHE_DIR") or platformdirs.user_cache_dir("attn")).absolute()
