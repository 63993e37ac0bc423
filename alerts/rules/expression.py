"""A small language for an operator's rules: arithmetic and comparisons over names of metrics.

`gpu_power_watts / gpu_power_limit_watts > 0.98 and gpu_utilization_ratio > 0.9`

Numbers, names of the catalogue and the power snapshots, `+ - * / %`, comparisons (also chained),
`and`, `or`, `not`, brackets, `abs`, `min` and `max`; nothing else parses, so an expression can only
read what its rule may read. It is three-valued: a comparison with a gap is unknown, and `and` and
`or` are known where their known parts decide.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from alerts.rules.names import WORDS
from alerts.rules.row_memory import Floats
from telemetry.errors import did_you_mean

Operand = Floats | float
"""A column, or a constant."""


def _divide(one: Operand, other: Operand) -> Floats:
    """Return the quotient; unknown where the divisor is 0."""
    return np.where(other == 0, np.nan, np.divide(one, other))


def _remainder(one: Operand, other: Operand) -> Floats:
    return np.where(other == 0, np.nan, np.mod(one, other))


Read = Callable[[str], Floats]
"""Returns one metric of every row."""

Verdicts = npt.NDArray[np.int8]
"""Truth of each row: 1 true, 0 false, -1 unknown."""

LONGEST = 2000
"""Most characters of an expression."""
LARGEST = 1e100
"""Largest constant."""
_ARITHMETIC: dict[type[ast.operator], Callable[[Operand, Operand], Floats]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: _divide,
    ast.Mod: _remainder,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Operand, Operand], np.ndarray]] = {
    ast.Gt: np.greater,
    ast.GtE: np.greater_equal,
    ast.Lt: np.less,
    ast.LtE: np.less_equal,
    ast.Eq: np.equal,
    ast.NotEq: np.not_equal,
}
_CALLS: dict[str, Callable[..., Floats]] = {"abs": np.abs, "min": np.minimum, "max": np.maximum}


class ExpressionError(ValueError):
    """A mistake in an expression, with what to write instead."""

    def __init__(self, problem: str, cure: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.cure = cure


class Expression:
    """A parsed expression that is true, false or unknown."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._tree = _parse(text)
        try:
            _check(self._tree)
        except RecursionError as error:
            raise ExpressionError("an expression is nested too deeply", "Split the rule.") from error
        self.names = _names(self._tree)
        """The metrics that it reads, in the order in which they are written."""

    def truth(self, read: Read, size: int) -> Verdicts:
        """Return 1 where it is true, 0 where it is false, -1 where that is unknown."""
        with np.errstate(all="ignore"):
            return np.broadcast_to(_truth(self._tree, read), (size,)).astype(np.int8)


@lru_cache(maxsize=1024)
def parse(text: str) -> Expression:
    """Return an expression. Raises `ExpressionError` for a text that is none."""
    return Expression(text)


def _parse(text: str) -> ast.expr:
    if len(text) > LONGEST:
        raise ExpressionError(f"an expression has {LONGEST} characters at most", "Split the rule.")
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        at = getattr(error, "text", None) or ""
        place = f" near {at.strip()[:60]!r}" if at.strip() else ""
        raise ExpressionError(f"{text!r} does not parse{place}", "Write for example: gpu_power_watts > 300") from error


def _names(tree: ast.expr) -> tuple[str, ...]:
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in WORDS]
    names.sort(key=lambda node: (node.lineno, node.col_offset))
    return tuple(dict.fromkeys(node.id for node in names))


def _check(tree: ast.expr, *, truth: bool = True) -> None:
    """Raise for a tree that is not of this language. `truth`: whether a truth value is expected."""
    match tree:
        case ast.BoolOp(values=values) if truth:
            for value in values:
                _check(value)
        case ast.UnaryOp(op=ast.Not(), operand=operand) if truth:
            _check(operand)
        case ast.Compare(left=left, ops=ops, comparators=others) if truth:
            for operand in (left, *others):
                _check(operand, truth=False)
            for op in ops:
                if type(op) not in _COMPARISONS:
                    raise ExpressionError(_cant(op), "Use > >= < <= == !=.")
        case ast.Constant(value=bool()):
            raise ExpressionError("True and False can't be used here", "A flag is compared: name > 0.")
        case ast.Constant(value=int() | float() as value) if not truth:
            if abs(value) > LARGEST:
                raise ExpressionError("a number is too large", "")
        case ast.Name(id=name) if not truth:
            if name not in WORDS:
                raise ExpressionError(f"there is no metric {name!r}", did_you_mean(name, WORDS))
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand) if not truth:
            _check(operand, truth=False)
        case ast.BinOp(left=left, op=op, right=right) if not truth:
            if type(op) not in _ARITHMETIC:
                raise ExpressionError(_cant(op), "Use + - * / %.")
            _check(left, truth=False)
            _check(right, truth=False)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if not truth:
            _check_call(name, len(args))
            for argument in args:
                _check(argument, truth=False)
        case ast.Name() | ast.Constant(value=int() | float()) | ast.BinOp() | ast.Call():
            raise ExpressionError(f"{ast.unparse(tree)!r} is a number, not a condition", "Compare it: ... > 0.")
        case ast.BoolOp() | ast.Compare() | ast.UnaryOp(op=ast.Not()):
            raise ExpressionError(f"{ast.unparse(tree)!r} is a condition, not a number", "Join conditions by and, or.")
        case _:
            raise ExpressionError(
                _cant(tree), "Use numbers, names, + - * / %, comparisons, and, or, not, abs, min, max."
            )


def _check_call(name: str, count: int) -> None:
    if name not in _CALLS:
        raise ExpressionError(f"there is no {name}()", f"There are {', '.join(_CALLS)}.")
    if (name == "abs") != (count == 1) or count == 0:
        raise ExpressionError(f"{name}() of {count}", "abs takes one value, min and max take two or more.")


def _cant(tree: ast.AST) -> str:
    what = ast.unparse(tree) if isinstance(tree, ast.expr) else type(tree).__name__
    return f"{what!r} can't be used in an expression"


# -- Evaluation: 1 true, 0 false, -1 unknown --------------------------------------------------------


def _truth(tree: ast.expr, read: Read) -> Verdicts:
    match tree:
        case ast.BoolOp(op=op, values=values):
            parts = [_truth(value, read) for value in values]
            return _all(parts) if isinstance(op, ast.And) else _not(_all([_not(p) for p in parts]))
        case ast.UnaryOp(operand=operand):
            return _not(_truth(operand, read))
        case ast.Compare(left=left, ops=ops, comparators=others):
            numbers = [_number(each, read) for each in (left, *others)]
            return _all(
                [
                    _compared(_COMPARISONS[type(op)], one, other)
                    for op, one, other in zip(ops, numbers, numbers[1:], strict=False)
                ]
            )
        case _:
            raise AssertionError(tree)  # _check allows nothing else


def _compared(compare: Callable[..., np.ndarray], one: Operand, other: Operand) -> Verdicts:
    verdicts: Verdicts = np.asarray(compare(one, other)).astype(np.int8)
    unknown = np.isnan(one) | np.isnan(other)
    return np.where(unknown, np.int8(-1), verdicts)


def _not(one: Verdicts) -> Verdicts:
    return np.where(one < 0, one, np.int8(1) - one).astype(np.int8)


def _all(parts: list[Verdicts]) -> Verdicts:
    """Return false if one is false, else unknown if one is unknown, else true."""
    found = parts[0]
    for part in parts[1:]:
        false = (found == 0) | (part == 0)
        found = np.where(false, np.int8(0), np.where((found < 0) | (part < 0), np.int8(-1), np.int8(1)))
    return found


def _number(tree: ast.expr, read: Read) -> Operand:
    """Return a metric's column, or a Python float where only constants are used.

    NumPy compares an array with a Python float in the precision of the array. A float32 reading of
    0.2 therefore equals the constant 0.2, as in the other kinds of condition and in Prometheus,
    which reads the shortest text of a float32.
    """
    found = _value(tree, read)
    return found if np.ndim(found) else float(found)


def _value(tree: ast.expr, read: Read) -> Operand:
    match tree:
        case ast.Constant(value=int() | float() as constant):
            return float(constant)
        case ast.Name(id=name):
            return read(name)
        case ast.UnaryOp(op=op, operand=operand):
            value = _number(operand, read)
            return -value if isinstance(op, ast.USub) else value
        case ast.BinOp(left=left, op=op, right=right):
            return _ARITHMETIC[type(op)](_number(left, read), _number(right, read))
        case ast.Call(func=ast.Name(id=name), args=args):
            values = [_number(argument, read) for argument in args]
            found = _CALLS[name](*values[:2])
            for value in values[2:]:
                found = _CALLS[name](found, value)
            return found
        case _:
            raise AssertionError(tree)
