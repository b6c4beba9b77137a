"""Reviews of the Yelp Open Dataset: users, a vocabulary, and a bag of words for each review.

The file is `yelp_academic_dataset_review.json`: one JSON object a line, of which ``user_id``,
``stars`` and ``text`` are read. It is read twice and never held in memory: the first time to count
reviews by user, the second to take the chosen users' reviews and a sample of the others.

The paper gives the sizes (section "Empirical validation", Yelp); what it leaves open follows the
authors' program: ten users with each number of reviews from 1 to 20, and words counted by the
number of sampled reviews that have them.
"""

from __future__ import annotations

import random
import string
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lethe.engine.errors import InvalidData

Array: TypeAlias = NDArray[np.float64]

LINE_LIMIT = 1 << 20
"""Bytes of one line. A review has at most 5,000 characters: 30 kB if each is escaped."""

USER_LIMIT = 20_000_000
"""Users that are counted: ten times as many as the data set has; about 150 bytes of memory each."""

_POSITIVE = 4  # stars
_SHORTEST_WORD = 2
_STRIPPED = str.maketrans("", "", string.punctuation + string.digits)


class Review(BaseModel):
    """One line of the file; other fields are not read."""

    model_config = ConfigDict(frozen=True)

    user_id: Annotated[str, Field(min_length=1, max_length=100)]
    stars: Annotated[float, Field(ge=1, le=5)]
    text: str


@dataclass(frozen=True, slots=True)
class Recipe:
    """How many of what.

    Attributes
    ----------
    users_each
        Users for each number of reviews.
    most_reviews
        Numbers of reviews are 1 to this.
    vocabulary
        Words.
    sampled
        Other users' reviews that the vocabulary is taken from; all, if there are fewer.
    """

    users_each: int = 10
    most_reviews: int = 20
    vocabulary: int = 1500
    sampled: int = 5000


PAPER = Recipe()
"""200 users, 2,100 reviews, 1,500 words."""


@dataclass(frozen=True, slots=True)
class Reviews:
    """Counts X (n x d), labels y (n,) of +1 and -1, and which user wrote each (n,)."""

    X: Array
    y: Array
    user: NDArray[np.intp]


def read_reviews(file: Path) -> Iterator[Review]:
    """Yield the reviews of a file, one line in memory at a time; empty lines are passed over.

    Raises
    ------
    InvalidData
        A line is too long, not JSON, or lacks a field; the message names the line.
    """
    with file.open("rb") as lines:
        number = 0
        while line := lines.readline(LINE_LIMIT + 1):
            number += 1
            if len(line) > LINE_LIMIT:
                raise InvalidData(
                    f"line {number} of {file.name} is longer than {LINE_LIMIT} bytes: give the "
                    "reviews as one JSON object a line"
                )
            if line.strip():
                yield _parsed(line, number, file)


def _parsed(line: bytes, number: int, file: Path) -> Review:
    try:
        return Review.model_validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        what = f"{where}: {first['msg']}" if where else first["msg"]
        raise InvalidData(
            f"line {number} of {file.name} is no review ({what}); each line is a JSON object with "
            "user_id, stars (1 to 5) and text"
        ) from error


def load(file: Path, recipe: Recipe, seed: int) -> Reviews:
    """Choose users and a vocabulary by the recipe, and count the words of their reviews."""
    chosen = choose_users(count_reviews(file), recipe, seed)
    number = {user: index for index, user in enumerate(chosen)}
    taken: list[Review] = []
    others: list[str] = []
    draw, seen = random.Random(seed), 0
    for review in read_reviews(file):
        if review.user_id in number:
            taken.append(review)
            continue
        seen += 1
        if len(others) < recipe.sampled:
            others.append(review.text)
        elif (place := draw.randrange(seen)) < recipe.sampled:
            others[place] = review.text
    words = vocabulary(others, recipe.vocabulary)
    return Reviews(
        bag_of_words([review.text for review in taken], words),
        np.array([1.0 if review.stars >= _POSITIVE else -1.0 for review in taken]),
        np.array([number[review.user_id] for review in taken], dtype=np.intp),
    )


def count_reviews(file: Path) -> Counter[str]:
    """Return how many reviews each user has."""
    counts: Counter[str] = Counter()
    for review in read_reviews(file):
        counts[review.user_id] += 1
        if len(counts) > USER_LIMIT:
            raise InvalidData(f"{file.name} has more than {USER_LIMIT:,} users; give a part of it")
    return counts


def choose_users(counts: Counter[str], recipe: Recipe, seed: int) -> list[str]:
    """Return `users_each` users for every number of reviews: those whose keyed hash is smallest.

    A choice by hash does not depend on the order of the file.
    """
    by_number: dict[int, list[str]] = {m: [] for m in range(1, recipe.most_reviews + 1)}
    for user, reviews in counts.items():
        if reviews in by_number:
            by_number[reviews].append(user)
    chosen: list[str] = []
    for reviews, users in by_number.items():
        if len(users) < recipe.users_each:
            raise InvalidData(
                f"the file has {len(users)} users with {reviews} review(s); the experiment needs "
                f"{recipe.users_each}: give the whole review file"
            )
        chosen += sorted(users, key=lambda user: _keyed(seed, user))[: recipe.users_each]
    return chosen


def _keyed(seed: int, user: str) -> bytes:
    return blake2b(user.encode(), key=str(seed).encode(), digest_size=16).digest()


def words_of(text: str) -> list[str]:
    """Return the words of a text: lower case, punctuation and digits dropped, two letters up."""
    split = text.lower().translate(_STRIPPED).split()
    return [word for word in split if len(word) >= _SHORTEST_WORD]


def vocabulary(texts: Sequence[str], size: int) -> list[str]:
    """Return the ``size`` words that most texts have; ties in alphabetical order."""
    having: Counter[str] = Counter()
    for text in texts:
        having.update(set(words_of(text)))
    if len(having) < size:
        raise InvalidData(
            f"the sampled reviews have {len(having)} words; the vocabulary needs {size}: give the "
            "whole review file"
        )
    ranked = sorted(having, key=lambda word: (-having[word], word))
    return ranked[:size]


def bag_of_words(texts: Sequence[str], words: Sequence[str]) -> Array:
    """Return how often each text has each word, len(texts) x len(words)."""
    column = {word: index for index, word in enumerate(words)}
    X = np.zeros((len(texts), len(words)))
    for row, text in enumerate(texts):
        for word, times in Counter(words_of(text)).items():
            if word in column:
                X[row, column[word]] = times
    return X
