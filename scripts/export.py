"""Hand a run to `transformers`: `python scripts/export.py run=outputs/<name> output=folder`; `--help` says more."""

import os
import sys

# -P: this folder stays off the path, where inspect.py would hide the standard library's.
os.execv(sys.executable, [sys.executable, "-P", "-m", "headscope", "export", *sys.argv[1:]])
