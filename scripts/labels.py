"""Find training texts whose label is probably wrong: `python scripts/labels.py run=outputs/<name>`."""

import os
import sys

# -P: this folder stays off the path, where inspect.py would hide the standard library's.
os.execv(sys.executable, [sys.executable, "-P", "-m", "headscope", "labels", *sys.argv[1:]])
