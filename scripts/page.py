"""Write a page on which a text is typed: `python scripts/page.py run=outputs/<name> output=page.html`."""

import os
import sys

# -P: this folder stays off the path, where inspect.py would hide the standard library's.
os.execv(sys.executable, [sys.executable, "-P", "-m", "headscope", "page", *sys.argv[1:]])
