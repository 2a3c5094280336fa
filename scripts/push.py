"""Put a run on the Hugging Face Hub: `python scripts/push.py run=outputs/<name> to=user/name`."""

import os
import sys

# -P: this folder stays off the path, where inspect.py would hide the standard library's.
os.execv(sys.executable, [sys.executable, "-P", "-m", "headscope", "push", *sys.argv[1:]])
