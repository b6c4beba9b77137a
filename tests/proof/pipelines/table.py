"""An ordinary table of customers: numbers with gaps, rare categories, truth values, counts."""

from __future__ import annotations

import numpy as np
import pandas as pd

ROWS = 240
GAPS = ["age", "income"]
NUMBERS = ["age", "income", "calls", "months"]
WHOLE = ["calls", "months"]
CATEGORIES = ["town", "plan"]
YES_NO = ["partner"]
TEXT = "note"
VALUE, LEFT, SEGMENT, COUNT = "value", "left", "segment", "visits"

_WORDS = np.array(["late", "fee", "thanks", "slow", "good", "bill", "again", "call", "wait"])


def customers(seed: int, rows: int = ROWS) -> pd.DataFrame:
    """Return a table; ``value``, ``left``, ``segment`` and ``visits`` can be its target."""
    draw = np.random.default_rng(seed)
    age, income = draw.normal(45.0, 14.0, rows), draw.lognormal(10.0, 0.5, rows)
    calls, months = draw.poisson(4.0, rows).astype(float), draw.integers(1, 72, rows).astype(float)
    town = draw.choice(["Ulm", "Bonn", "Kiel", "Rom"], rows, p=[0.4, 0.3, 0.25, 0.05])
    plan, partner = draw.choice(["basic", "plus", "pro"], rows), draw.random(rows) < 0.4
    signal = (age - 45.0) / 14.0 + 0.4 * (town == "Ulm") - 0.02 * months + 0.5 * partner
    noisy = signal + draw.normal(size=rows)
    age[draw.random(rows) < 0.08] = np.nan
    income[draw.random(rows) < 0.08] = np.nan
    return pd.DataFrame(
        {
            "age": age,
            "income": income,
            "calls": calls,
            "months": months,
            "town": town,
            "plan": plan,
            "partner": np.where(partner, "yes", "no"),
            TEXT: [" ".join(draw.choice(_WORDS, 4)) for _ in range(rows)],
            VALUE: 100.0 + 20.0 * noisy,
            LEFT: np.where(noisy > 0.0, "yes", "no"),
            SEGMENT: np.array(["a", "b", "c"])[np.digitize(noisy, [-0.8, 0.6])],
            COUNT: draw.poisson(np.exp(0.3 * np.clip(signal, -3.0, 3.0))).astype(float),
        }
    )
