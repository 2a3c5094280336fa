"""Prove the attention: `python scripts/verify.py [dtype=float32] [device=cuda]`; `--help` lists every key."""

import os
import sys

# -P: this folder stays off the path, where inspect.py would hide the standard library's.
os.execv(sys.executable, [sys.executable, "-P", "-m", "headscope", "verify", *sys.argv[1:]])
