"""Answer what costs least, or nothing: a table of costs, over a csv that `headscope predict` wrote.

    headscope predict run=outputs/first input=new.csv output=answers.csv min_confidence=0
    python examples/costs.py answers.csv costs.csv decided.csv --label label

Why: the likeliest class is the best answer only where all mistakes cost the same. costs.csv has the
columns given (empty: each class but the predicted one), predicted (empty: no answer) and cost.
Without a row a wrong answer costs 1, and there is an answer to each familiar text. Of the answers c
that of the least sum_k p_k cost_kc is taken (Elkan 2001, The Foundations of Cost-Sensitive
Learning, equation 1). If 99 % of a class's answers shall be right, let a wrong one cost
100 = 1 / (1 - 0.99) and no answer 1: it is answered from a probability of 0.99 on. With --label, a
column of the right classes, it is printed how often each answer is right, and what all cost: look
at other texts than those for which you chose the table. For one label a text.
"""

import argparse

import numpy as np
import pandas as pd


def cost_table(path: str, classes: list[str]) -> np.ndarray:
    """Return what each answer costs [C, C + 1], of each right class; the last is no answer."""
    rows = pd.read_csv(path, dtype=str, keep_default_na=False)
    costs = np.column_stack([1.0 - np.eye(len(classes)), np.full(len(classes), np.inf)])
    for given, predicted, cost in rows[["given", "predicted", "cost"]].itertuples(index=False):
        answer = [*classes, ""].index(predicted)
        right = [classes.index(given)] if given else [k for k in range(len(classes)) if k != answer]
        costs[right, answer] = float(cost)
    return costs


def decide(table: pd.DataFrame, costs_path: str, label: str | None) -> pd.DataFrame:
    """Return the table with other answers, and print how good they are."""
    own = table.columns[table.columns.get_loc("prediction") + 1 :]
    columns = [name for name in own if name.startswith("probability_")]
    classes = [name.removeprefix("probability_") for name in columns]
    costs = cost_table(costs_path, classes)
    with np.errstate(invalid="ignore"):  # 0 times infinity
        expected = np.nan_to_num(table[columns].astype(float).to_numpy() @ costs, nan=np.inf)
    is_odd = (table["abstained"] == "unfamiliar").to_numpy()
    best = np.where(is_odd, len(classes), expected.argmin(axis=1))
    why = np.where(is_odd, "unfamiliar", np.where(best == len(classes), "cost", ""))
    table = table.assign(prediction=np.array([*classes, ""], object)[best], abstained=why)
    if label is not None:
        right = (table["prediction"] == table[label]).groupby(table["prediction"])
        print(right.agg(["size", "sum", "mean"]).set_axis(["answers", "right", "share"], axis=1))
        print("mean cost", costs[[classes.index(name) for name in table[label]], best].mean())
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("answers", "costs", "output", "--label"):
        parser.add_argument(name)
    given = parser.parse_args()
    answers = pd.read_csv(given.answers, dtype=str, keep_default_na=False)
    decide(answers, given.costs, given.label).to_csv(given.output, index=False)
