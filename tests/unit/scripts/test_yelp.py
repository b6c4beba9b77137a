"""The Yelp experiment reads the data set's review file as it is, and refuses what it is not."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

from harness.results import where
from lethe.engine.errors import InvalidData
from paper import command, yelp
from paper.experiment import Method, Metric
from paper.records import Record
from paper.yelp_reviews import LINE_LIMIT, Recipe, bag_of_words, load, read_reviews, words_of

WORDS = [f"{a}{b}{c}" for a in "bdfg" for b in "aeio" for c in "lmnr"]  # 64, all letters
RECIPE = yelp.SMALL


def line_of(user: str, stars: float, text: str) -> str:
    """Return a line with the fields of the data set, in its order."""
    review = {
        "review_id": "KU_O5udG6zpxOg-VcAEodg",
        "user_id": user,
        "business_id": "XQfwVwDr-v0ZS3_CbbE5Xw",
        "stars": stars,
        "useful": 0,
        "funny": 0,
        "cool": 0,
        "text": text,
        "date": "2018-07-07 22:09:11",
    }
    return json.dumps(review)


def made_lines(users_each: int = 8) -> list[str]:
    """Return reviews whose words depend on their stars, shuffled."""
    draw = random.Random(7)
    lines = []
    for reviews in range(1, RECIPE.most_reviews + 1):
        for number in range(users_each):
            for _ in range(reviews):
                stars = float(draw.randint(1, 5))
                liked = WORDS[:40] if stars >= 4 else WORDS[24:]
                words = [draw.choice(liked) for _ in range(draw.randint(5, 25))]
                lines.append(line_of(f"user-{reviews}-{number}", stars, " ".join(words)))
    draw.shuffle(lines)
    return lines


def written(folder: Path, lines: list[str]) -> Path:
    file = folder / "yelp_academic_dataset_review.json"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("yelp"), made_lines())


@pytest.fixture(scope="module")
def records(made: Path) -> list[Record]:
    experiment = yelp.experiment(made)
    (cell,) = experiment.cells(True)
    return experiment.run_cell(cell, 1, lambda _share: None)


def test_users_with_every_number_of_reviews_are_taken_with_all_of_their_reviews(made: Path) -> None:
    reviews = load(made, RECIPE, seed=1)

    written_by = np.bincount(reviews.user)
    assert sorted(written_by) == sorted([1, 2, 3, 4, 5] * RECIPE.users_each)
    assert reviews.X.shape == (len(reviews.y), RECIPE.vocabulary)
    assert set(reviews.y) == {-1.0, 1.0}


def test_users_do_not_depend_on_the_order_of_the_file_but_on_the_seed(
    made: Path, tmp_path: Path
) -> None:
    turned = written(tmp_path, made.read_text(encoding="utf-8").splitlines()[::-1])

    def total(file: Path, seed: int) -> float:
        return float(np.sum(load(file, Recipe(3, 5, 64, 10_000), seed).X ** 2))

    assert total(turned, 1) == total(made, 1)
    assert total(made, 2) != total(made, 1)


def test_words_are_lower_case_letters_and_counted_for_each_review() -> None:
    assert words_of("It's 5 stars!! I LOVED the mac'n'cheese; café a+") == [
        "its",
        "stars",
        "loved",
        "the",
        "macncheese",
        "café",
    ]
    counted = bag_of_words(["good good pie", "bad"], ["good", "bad"])
    assert counted.tolist() == [[2.0, 0.0], [0.0, 1.0]]


def test_four_and_five_stars_are_positive(tmp_path: Path) -> None:
    lines = [line_of(f"u{stars}", stars, f"word{'x' * stars} good") for stars in range(1, 6)]
    lines += [line_of("other", 3, "good bad"), line_of("other", 3, "bad good")]

    reviews = load(written(tmp_path, lines), Recipe(5, 1, 2, 10), seed=1)

    by_user = dict(zip(reviews.user, reviews.y, strict=True))
    assert sorted(by_user.values()) == [-1.0, -1.0, -1.0, 1.0, 1.0]
    assert reviews.X[:, 1].tolist() == [1.0] * 5  # "good" follows "bad": alphabetical when even


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ('{"user_id": "a", "stars": 5', "Invalid JSON"),
        ("not json", "Invalid JSON"),
        ('{"user_id": "a", "stars": 5}', "text: Field required"),
        ('{"user_id": "a", "stars": 9, "text": "x"}', "stars"),
        ('{"user_id": "", "stars": 3, "text": "x"}', "user_id"),
        ('{"user_id": 7, "stars": 3, "text": "x"}', "user_id"),
        ("[1, 2]", "object"),
        ('{"user_id": "a", "stars": NaN, "text": "x"}', "stars"),
    ],
)
def test_a_bad_line_is_named_with_what_is_wrong(tmp_path: Path, line: str, wanted: str) -> None:
    file = written(tmp_path, [line_of("a", 4, "fine"), "", line])

    with pytest.raises(InvalidData, match=f"line 3 of yelp_academic.*{wanted}"):
        list(read_reviews(file))


def test_a_line_that_is_too_long_is_refused_before_it_is_read(tmp_path: Path) -> None:
    file = written(tmp_path, ["[" + line_of("a", 4, "x" * LINE_LIMIT)])

    with pytest.raises(InvalidData, match=r"line 1 of .* longer than"):
        list(read_reviews(file))


def test_bytes_that_are_not_utf8_are_named(tmp_path: Path) -> None:
    file = tmp_path / "reviews.json"
    file.write_bytes(b'{"user_id": "a", "stars": 4, "text": "\xff\xfe"}\n')

    with pytest.raises(InvalidData, match="line 1 of"):
        list(read_reviews(file))


def test_a_file_with_too_few_users_or_words_says_what_is_missing(tmp_path: Path) -> None:
    file = written(tmp_path, made_lines(users_each=2))
    with pytest.raises(InvalidData, match=r"2 users with 1 review\(s\); the experiment needs 3"):
        load(file, RECIPE, seed=1)
    with pytest.raises(InvalidData, match="words; the vocabulary needs 65"):
        load(file, Recipe(1, 5, 65, 10_000), seed=1)


def test_ours_leaves_nothing_where_influence_does(records: list[Record]) -> None:
    for metric in (Metric.FIT, yelp.FIT_OF_USER):
        ours = where(records, method=Method.EXACT, metric=metric)
        assert ours
        assert max(abs(record.value) for record in ours) < 1e-6
    assert min(r.value for r in where(records, method=Method.INFLUENCE, metric=Metric.FIT)) > 0.1
    assert all(check.passed for check in yelp.checks(records))


def test_the_distances_are_those_of_retraining_by_least_squares(made: Path) -> None:
    reviews = load(made, RECIPE, seed=1)
    deleted = np.flatnonzero(reviews.user == 12)
    X, y = yelp.arranged(reviews, deleted, None)
    k, d = len(deleted), X.shape[1]
    penalty = np.sqrt(1e-4) * np.eye(d)

    def solved(first: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        rows = np.vstack([X[first:], penalty])
        answer = np.linalg.lstsq(rows, np.concatenate([y[first:], np.zeros(d)]), rcond=None)
        return np.asarray(answer[0])

    full, live = solved(0), solved(k)
    A = X.T @ X + 1e-4 * np.eye(d)
    influence = full + np.linalg.solve(A, X[:k].T @ (X[:k] @ full - y[:k]))
    wanted = np.linalg.norm(influence - live) / np.linalg.norm(full - live)

    samples = list(yelp.user_samples(reviews, lambda _share: None))

    # Users are numbered by their reviews: 0 to 2 have one, 12 to 14 have five.
    of_five = [
        s.value
        for s in samples
        if (s.k, s.method, s.metric) == (5, Method.INFLUENCE, yelp.L2_OF_USER)
    ]
    assert k == 5
    assert of_five[0] == pytest.approx(wanted, rel=1e-6)


def test_the_command_runs_on_a_file_and_draws_the_figure(made: Path, tmp_path: Path) -> None:
    page = tmp_path / "paper.md"
    options = ["--quick", "--only", "yelp", "--results", str(tmp_path / "results")]

    assert command.main([*options, "--yelp", str(made), "--page", str(page)]) == 0

    text = page.read_text(encoding="utf-8")
    assert f"| k | {Metric.FIT}, inf |" in text
    assert f"{Metric.L2}, ours" in text
    assert (tmp_path / "images" / "paper-yelp.png").stat().st_size > 10_000


def test_without_a_file_one_line_says_how_to_get_and_pass_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "paper.md"
    options = ["--quick", "--only", "yelp", "--results", str(tmp_path / "results")]

    assert command.main([*options, "--page", str(page)]) == 0

    said = [line for line in capsys.readouterr().err.splitlines() if "yelp" in line]
    assert len(said) == 1
    for part in ("Yelp Open Dataset", "terms", "make paper YELP=FILE", "--yelp FILE"):
        assert part in said[0]
        assert part in page.read_text(encoding="utf-8")


def test_a_path_that_is_no_file_exits_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "missing.json"
    options = ["--quick", "--only", "yelp", "--results", str(tmp_path / "results")]

    assert command.main([*options, "--yelp", str(missing)]) == 2
    assert "is not a file" in capsys.readouterr().err
