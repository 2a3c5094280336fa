"""Print attention step by step: `python scripts/trace.py [seq_len=100]`; `--help` lists every key."""

import os
import sys

# -P: this folder stays off the path, where inspect.py would hide the standard library's.
os.execv(sys.executable, [sys.executable, "-P", "-m", "headscope", "trace", *sys.argv[1:]])
