"""Expressions from their text, which is parsed and never run."""

from __future__ import annotations

import ast
import warnings
from functools import lru_cache
from typing import cast

from lethe.engine.errors import InvalidData
from lethe.engine.preprocess.input.derived import (
    Above,
    Applied,
    Expression,
    Extrapolation,
    Filled,
    Missing,
    Norm,
    Normalised,
    Product,
    Same,
    Scaled,
    Spline,
    Sum,
    finite,
)

MAX_TEXT = 20_000
"""Characters of an expression: a norm over 150 columns with the longest names."""

MAX_DEPTH = 20


@lru_cache(maxsize=4096)
def parsed(text: str) -> Expression:
    """Return the expression that text writes, as `str` does.

    Raises
    ------
    InvalidData
        It writes none; the message says which part of it is not known.
    """
    if len(text) > MAX_TEXT:
        raise InvalidData(f"the expression has {len(text)} characters, and at most {MAX_TEXT}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return _of_tree(ast.parse(text.strip(), mode="eval").body, 0)
    except InvalidData:
        raise
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InvalidData(
            f"{text!r} is no expression; write for example log1p(age), age**2 * income, or a "
            "column's name in quotes"
        ) from None


def _of_tree(tree: ast.expr, depth: int) -> Expression:
    if depth > MAX_DEPTH:
        raise InvalidData(f"the expression has more than {MAX_DEPTH} levels")
    match tree:
        case ast.Name(id=name) | ast.Constant(value=str(name)):
            return Same(name)
        case ast.BinOp(left=base, op=ast.Pow(), right=ast.Constant(value=int(power))):
            return Product([(_of_tree(base, depth + 1), power)])
        case ast.BinOp(left=left, op=ast.Mult(), right=right) if _is_number(left):
            return Scaled(_of_tree(right, depth + 1), _number(left))
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            # A product of many factors is a tree as deep as there are factors.
            return Product([(_of_tree(left, depth), 1), (_of_tree(right, depth + 1), 1)])
        case ast.BinOp(op=ast.Add()):
            return _of_sum(tree, depth + 1)
        case ast.Call(func=ast.Name(id=name), args=given, keywords=[]):
            return _of_call(name, given, depth + 1)
    raise InvalidData(f"{ast.unparse(tree)!r} is no part of an expression")


def _of_sum(tree: ast.expr, depth: int) -> Expression:
    """Return a sum, whose tree is as deep as there are summands."""
    summands: list[ast.expr] = []
    while isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.Add):
        summands.append(tree.right)
        tree = tree.left
    summands.append(tree)
    numbers = [_number(one) for one in reversed(summands) if _is_number(one)]
    others = [_of_tree(one, depth) for one in reversed(summands) if not _is_number(one)]
    return Sum(tuple(others), sum(numbers))


def _of_call(name: str, given: list[ast.expr], depth: int) -> Expression:
    if name == "spline" and given and _is_number(given[0]):
        given = [ast.Constant("constant"), *given]
    match name, given:
        case "filled", [to, value]:
            return Filled(_of_tree(to, depth), _text_or_number(value))
        case "missing", [to]:
            return Missing(_of_tree(to, depth))
        case "above", [to, threshold]:
            return Above(_of_tree(to, depth), _number(threshold))
        case "normalised", [ast.Constant(value=str(norm)), ast.Constant(value=int(place)), *to]:
            values = tuple(_of_tree(one, depth) for one in to)
            return Normalised(values, cast("Norm", norm), place)
        case "spline", [
            ast.Constant(value=str(beyond)),
            ast.Constant(value=int(degree)),
            ast.Constant(value=int(place)),
            to,
            *knots,
        ]:
            of, numbers = _of_tree(to, depth), tuple(map(_number, knots))
            return Spline(of, numbers, degree, place, cast("Extrapolation", beyond))
        case _, [to] if name not in ("filled", "above", "normalised", "spline"):
            return Applied(_of_tree(to, depth), name)
    known = (
        "filled(x, value), missing(x), above(x, threshold), normalised(norm, place, x, ...), "
        "spline(degree, place, x, knot, knot, ...), spline('periodic', degree, place, x, ...)"
    )
    raise InvalidData(f"{name} does not take these; there are {known}, and functions of one value")


def _is_number(tree: ast.expr) -> bool:
    inner = tree.operand if isinstance(tree, ast.UnaryOp) else tree
    return isinstance(inner, ast.Constant) and isinstance(inner.value, int | float)


def _text_or_number(tree: ast.expr) -> float | str:
    text = isinstance(tree, ast.Constant) and isinstance(tree.value, str)
    return str(ast.literal_eval(tree)) if text else _number(tree)


def _number(tree: ast.expr) -> float:
    try:
        return finite(ast.literal_eval(tree))
    except (ValueError, OverflowError):  # of what InvalidData derives from, too
        raise InvalidData(f"{ast.unparse(tree)!r} is not a number") from None
