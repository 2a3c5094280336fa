"""Write what a run learned over many texts: `python scripts/report.py run=outputs/<name>`."""

import os
import sys

# -P: this folder stays off the path, where inspect.py would hide the standard library's.
os.execv(sys.executable, [sys.executable, "-P", "-m", "headscope", "report", *sys.argv[1:]])
