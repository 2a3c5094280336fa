"""How well texts are classified, beside what a user would pick instead, on one split of each data set."""
