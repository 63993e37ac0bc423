"""Expressions of `alerts.rules.expression` in PromQL.

Both are three-valued: a comparison with a gap has no series, and `not` is pushed down to the
comparisons, so that a gap below it has none either.
"""

from __future__ import annotations

import ast

from alerts.rules.names import home
from api.alerts import Subject
from kilowatch.prometheus.vectors import NotExpressible, PromQL, finest, identity, literal, on, series

_SIGNS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Gt: (">", "<="),
    ast.GtE: (">=", "<"),
    ast.Lt: ("<", ">="),
    ast.LtE: ("<=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
}
"""Sign of a comparison, and its opposite."""
_ARITHMETIC: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Mod: "%"}
_Number = tuple[str, Subject | None]
"""PromQL, and the subject of its series; None for a plain number."""


def formula(text: str) -> PromQL:
    """Return an expression in PromQL. Raises `NotExpressible`."""
    return _truth(ast.parse(text.strip(), mode="eval").body, so=True)


def _truth(tree: ast.expr, *, so: bool) -> PromQL:
    match tree:
        case ast.UnaryOp(operand=operand):
            return _truth(operand, so=not so)
        case ast.BoolOp(op=op, values=values):
            parts = [_truth(value, so=so) for value in values]
            return both(parts) if isinstance(op, ast.And) == so else either(parts)
        case ast.Compare(left=left, ops=ops, comparators=others):
            numbers = [_number(each) for each in (left, *others)]
            parts = [
                _compared(_SIGNS[type(op)][0 if so else 1], one, other)
                for op, one, other in zip(ops, numbers, numbers[1:], strict=False)
            ]
            return both(parts) if so else either(parts)
        case _:
            raise AssertionError(tree)  # the rule's loader allows nothing else


def both(parts: list[PromQL]) -> PromQL:
    """Return a condition that is bad where all parts are; the most detailed part comes first."""
    if len(parts) == 1:
        return parts[0]
    subject = finest([part.subject for part in parts])
    ordered = sorted(parts, key=lambda part: -len(identity(part.subject)))
    first, *rest = ordered
    text = first.term
    for part in rest:
        text += f" and {on(part.subject)} {part.term}"
    return _joined(text, subject, parts)


def either(parts: list[PromQL]) -> PromQL:
    """Return a condition that is bad where one part is. Raises `NotExpressible` where they are of different things."""
    if len(parts) == 1:
        return parts[0]
    subject = parts[0].subject
    if any(part.subject is not subject for part in parts):
        raise NotExpressible("it joins conditions on different things by `or`")
    return _joined(f" or {on(subject)} ".join(part.term for part in parts), subject, parts)


def _joined(text: str, subject: Subject, parts: list[PromQL]) -> PromQL:
    return PromQL(
        text,
        subject,
        tuple(dict.fromkeys(note for part in parts for note in part.notes)),
        tuple(dict.fromkeys(record for part in parts for record in part.records)),
        max(part.spare for part in parts),
        plain=False,
    )


def _compared(sign: str, one: _Number, other: _Number) -> PromQL:
    text, subject = _operated(sign, one, other)
    if subject is None:
        raise NotExpressible("it compares plain numbers")
    return PromQL(text, subject, plain=False)


def _operated(sign: str, one: _Number, other: _Number) -> _Number:
    (left, mine), (right, theirs) = one, other
    if mine is None or theirs is None or mine is theirs:
        return f"{left} {sign} {right}", mine or theirs
    fine = finest([mine, theirs])
    coarse = theirs if fine is mine else mine
    side = "group_left ()" if fine is mine else "group_right ()"
    return f"{left} {sign} {on(coarse)} {side} {right}", fine


def _number(tree: ast.expr) -> _Number:
    match tree:
        case ast.Constant(value=int() | float() as constant):
            return literal(constant), None
        case ast.Name(id=name):
            return series(name), home(name)
        case ast.UnaryOp(op=op, operand=operand):
            text, subject = _number(operand)
            return (f"-{text}" if isinstance(op, ast.USub) else text), subject
        case ast.BinOp(left=left, op=op, right=right):
            text, subject = _operated(_ARITHMETIC[type(op)], _number(left), _number(right))
            return f"({text})", subject
        case ast.Call(func=ast.Name(id=name), args=args):
            numbers = [_number(argument) for argument in args]
            found = numbers[0]
            for number in numbers[1:]:
                found = _extreme(name, found, number)
            return _called("abs", *found) if name == "abs" else found
        case _:
            raise AssertionError(tree)


def _extreme(name: str, one: _Number, other: _Number) -> _Number:
    """Return the lower or the higher of two, where both are known."""
    if one[1] is None:
        one, other = other, one
    (left, subject), (right, theirs) = one, other
    if theirs is None:
        return _called("clamp_max" if name == "min" else "clamp_min", left, subject, f", {right}")
    if theirs is not subject:
        raise NotExpressible(f"{name}() of metrics of different things")
    sign, opposite = ("<=", "<") if name == "min" else (">=", ">")
    return f"(({left} {sign} {right}) or ({right} {opposite} {left}))", subject


def _called(function: str, text: str, subject: Subject | None, more: str = "") -> _Number:
    """Call a function of PromQL, all of which take vectors, on a vector or a plain number."""
    if subject is None:
        return f"scalar({function}(vector({text}){more}))", None
    return f"{function}({text}{more})", subject
