"""Train a text classifier: `python scripts/train.py [key=value ...]`; `--help` lists every key."""

import os
import sys

# -P: this folder stays off the path, where inspect.py would hide the standard library's.
os.execv(sys.executable, [sys.executable, "-P", "-m", "headscope", "train", *sys.argv[1:]])
