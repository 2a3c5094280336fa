"""Search for good settings: `python scripts/tune.py space=learning trials=30`; `--help` lists every key."""

import os
import sys

# -P: this folder stays off the path, where inspect.py would hide the standard library's.
os.execv(sys.executable, [sys.executable, "-P", "-m", "headscope", "tune", *sys.argv[1:]])
