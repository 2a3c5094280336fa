"""Train a text classifier: `python scripts/train.py [key=value ...]`; `--help` lists every key."""

import os
import sys

# -P: no file where you are hides a module of the standard library.
os.execv(sys.executable, [sys.executable, "-P", "-m", "headscope", "train", *sys.argv[1:]])
