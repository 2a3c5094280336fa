"""Show what every head does: `python scripts/inspect.py run=outputs/<name> [text="..."]`; `--help` lists every key."""

import os
import sys

# -P: this folder stays off the path, where inspect.py would hide the standard library's.
os.execv(sys.executable, [sys.executable, "-P", "-m", "headscope", "inspect", *sys.argv[1:]])
