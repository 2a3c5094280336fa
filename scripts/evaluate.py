"""Score a finished run: `python scripts/evaluate.py run=outputs/<name> [data=...]`; `--help` lists every key."""

import os
import sys

# -P: this folder stays off the path, where inspect.py would hide the standard library's.
os.execv(sys.executable, [sys.executable, "-P", "-m", "headscope", "evaluate", *sys.argv[1:]])
