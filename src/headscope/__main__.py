"""`python -m headscope` is the command `headscope`."""

from headscope.cli import main

main()
