"""Label texts with a finished run: `python scripts/predict.py run=outputs/<name> input=texts.csv output=labels.csv`."""

import os
import sys

# -P: no file where you are hides a module of the standard library.
os.execv(sys.executable, [sys.executable, "-P", "-m", "headscope", "predict", *sys.argv[1:]])
