"""The computation of multi-head attention, step by step, as it was observed while it ran.

`steps.py` records every operation, `cost.py` counts what it costs, `growth.py` how that grows with the text.
"""
