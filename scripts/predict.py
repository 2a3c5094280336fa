"""Label texts with a finished run: `python scripts/predict.py run=outputs/<name> input=texts.csv output=labels.csv`."""

import os
import sys

# -P: this folder stays off the path, where inspect.py would hide the standard library's.
os.execv(sys.executable, [sys.executable, "-P", "-m", "headscope", "predict", *sys.argv[1:]])
