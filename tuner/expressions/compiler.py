"""Owns the whitelist: which syntax is in the language, and the closure each node becomes.

Text is parsed by Python's own parser; only the nodes listed here are accepted and nothing is ever
evaluated by Python itself. Knows no names in particular.
"""

from __future__ import annotations

import ast
import operator
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from tuner.expressions.operators import (
    MAX_MAGNITUDE,
    UNSET,
    ExpressionError,
    MissingName,
    compute,
    is_in,
    is_not_in,
    number_of,
    ordered,
    truth_of,
)

Env: TypeAlias = Mapping[str, Any]
Run: TypeAlias = Callable[[Env], Any]

MAX_LENGTH = 1000
MAX_NODES = 300


@dataclass(frozen=True, slots=True)
class Name:
    """A name as it is used in an expression, with its 0-based offset."""

    name: str
    offset: int


def syntax_tree(text: str) -> tuple[ast.expr, int]:
    """The syntax of a text and how many leading blanks it had; raises ExpressionError."""
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"must have at most {MAX_LENGTH} characters, got {len(text)}")
    if not text.strip():
        raise ExpressionError("must be an expression, got nothing")
    source = re.sub(r"[\r\n\t\f]", " ", text)
    shift = len(source) - len(source.lstrip())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source.strip(), mode="eval")
    except SyntaxError as error:
        offset = min(len(text), shift + max(0, (error.offset or 1) - 1))
        raise ExpressionError(
            f"must be an expression, got {text.strip()!r}", offset, _syntax_hint(text)
        ) from None
    except (ValueError, MemoryError, RecursionError):
        raise ExpressionError("must be an expression without nested depth or NUL") from None
    return tree.body, shift


def _syntax_hint(text: str) -> str:
    for wrong, right in (("&&", "and"), ("||", "or"), ("=>", ">="), ("=<", "<="), ("<>", "!=")):
        if wrong in text:
            return f"Write {right} instead of {wrong}."
    if re.search(r"(?<![=<>!])=(?!=)", text):
        return "Write == to compare."
    if re.search(r"!(?!=)", text):
        return "Write not instead of !."
    return ""


class Compiler:
    """Turns whitelisted nodes into closures and collects the names they use."""

    def __init__(self, text: str, shift: int) -> None:
        self.text = text
        self.shift = shift
        self.uses: list[Name] = []
        self.nodes = 0
        self.handlers: dict[type[ast.expr], Callable[[Any], Run]] = {
            ast.Constant: self._constant,
            ast.Name: self._name,
            ast.BinOp: self._arithmetic,
            ast.UnaryOp: self._unary,
            ast.BoolOp: self._logic,
            ast.Compare: self._comparison,
            ast.IfExp: self._choice,
            ast.Call: self._call,
        }

    def compile(self, node: ast.expr) -> Run:
        """The closure that computes a node; raises ExpressionError for what is not allowed."""
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise self.error(node, f"must have at most {MAX_NODES} parts")
        handler = self.handlers.get(type(node))
        if handler is None:
            raise self.error(node, f"must not contain {_described(node)}", _LANGUAGE)
        return handler(node)

    def error(self, node: ast.AST, message: str, hint: str = "") -> ExpressionError:
        """An error at a node."""
        return ExpressionError(message, self._offset(node), hint)

    def _offset(self, node: ast.AST) -> int:
        prefix = self.text.strip().encode()[: getattr(node, "col_offset", 0)]
        return self.shift + len(prefix.decode(errors="ignore"))

    def _constant(self, node: ast.Constant) -> Run:
        value = node.value
        if not isinstance(value, bool | int | float | str):
            raise self.error(node, f"must not contain {ast.unparse(node)}", _LANGUAGE)
        if not isinstance(value, str) and abs(value) > MAX_MAGNITUDE:
            raise self.error(node, f"must have numbers of at most {MAX_MAGNITUDE:g}")
        return lambda env: value

    def _name(self, node: ast.Name) -> Run:
        name = node.id
        if name in _WORDS:
            word = _WORDS[name]
            return lambda env: word
        self.uses.append(Name(name, self._offset(node)))

        def look_up(env: Env) -> Any:
            try:
                return env[name]
            except KeyError:
                raise MissingName(name) from None

        return look_up

    def _arithmetic(self, node: ast.BinOp) -> Run:
        operation = _ARITHMETIC.get(type(node.op))
        if operation is None:
            raise self.error(node, f"must not contain {_described(node.op)}", _LANGUAGE)
        left, right, offset = self.compile(node.left), self.compile(node.right), self._offset(node)
        return lambda env: compute(operation, number_of(left(env)), number_of(right(env)), offset)

    def _unary(self, node: ast.UnaryOp) -> Run:
        operand, offset = self.compile(node.operand), self._offset(node)
        if isinstance(node.op, ast.Not):
            return lambda env: not truth_of(operand(env), offset)
        if isinstance(node.op, ast.USub):
            return lambda env: -number_of(operand(env), offset)
        if isinstance(node.op, ast.UAdd):
            return lambda env: number_of(operand(env), offset)
        raise self.error(node, "must not contain ~", _LANGUAGE)

    def _logic(self, node: ast.BoolOp) -> Run:
        parts, offset = [self.compile(value) for value in node.values], self._offset(node)
        if isinstance(node.op, ast.And):
            return lambda env: all(truth_of(part(env), offset) for part in parts)
        return lambda env: any(truth_of(part(env), offset) for part in parts)

    def _comparison(self, node: ast.Compare) -> Run:
        first = self.compile(node.left)
        links = [
            self._link(node, op, right)
            for op, right in zip(node.ops, node.comparators, strict=True)
        ]

        def run(env: Env) -> bool:
            left = first(env)
            for test, right in links:
                value = right(env)
                if not test(left, value):
                    return False
                left = value
            return True

        return run

    def _link(
        self, node: ast.Compare, op: ast.cmpop, right: ast.expr
    ) -> tuple[Callable[[Any, Any], bool], Run]:
        if isinstance(op, ast.In | ast.NotIn):
            test = is_in if isinstance(op, ast.In) else is_not_in
            return test, self._members(right)
        if type(op) in _EQUALITY:
            return _EQUALITY[type(op)], self.compile(right)
        ordering = _ORDERING.get(type(op))
        if ordering is None:
            raise self.error(node, f"must not contain {_described(op)}", _LANGUAGE)
        offset = self._offset(node)
        return (lambda a, b: ordered(ordering, a, b, offset)), self.compile(right)

    def _members(self, node: ast.expr) -> Run:
        if not isinstance(node, ast.List | ast.Tuple):
            raise self.error(node, "must have a list after in", "Write x in [1, 2].")
        parts = [self.compile(element) for element in node.elts]
        return lambda env: [part(env) for part in parts]

    def _choice(self, node: ast.IfExp) -> Run:
        test, yes, no = self.compile(node.test), self.compile(node.body), self.compile(node.orelse)
        offset = self._offset(node)
        return lambda env: yes(env) if truth_of(test(env), offset) else no(env)

    def _call(self, node: ast.Call) -> Run:
        function = _FUNCTIONS.get(node.func.id) if isinstance(node.func, ast.Name) else None
        if function is None or node.keywords:
            raise self.error(node, f"must not call {ast.unparse(node.func)}", _LANGUAGE)
        counts = range(1, 2) if function is abs else range(2, MAX_NODES)
        if len(node.args) not in counts:
            raise self.error(node, "must give abs one value, min and max two or more")
        parts, offset = [self.compile(argument) for argument in node.args], self._offset(node)
        return lambda env: function(*(number_of(part(env), offset) for part in parts))


_LANGUAGE = (
    "Use names, numbers, 'text', comparisons, + - * / // % **, and, or, not, in [..], "
    "a if c else b, min, max, abs."
)
_WORDS: dict[str, Any] = {"true": True, "false": False, UNSET: UNSET}
_FUNCTIONS: dict[str, Callable[..., Any]] = {"min": min, "max": max, "abs": abs}
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_EQUALITY: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_ORDERING: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def _described(node: ast.AST) -> str:
    return _NODE_NAMES.get(type(node).__name__, type(node).__name__)


_NODE_NAMES = {
    "Attribute": "a dot",
    "Subscript": "[ ] after a name",
    "Lambda": "lambda",
    "List": "a list outside in",
    "Tuple": "a comma outside in",
    "Dict": "{ }",
    "Set": "{ }",
    "JoinedStr": "an f-string",
    "NamedExpr": ":=",
    "BitAnd": "&",
    "BitOr": "|",
    "BitXor": "^",
    "LShift": "<<",
    "RShift": ">>",
    "MatMult": "@",
    "Is": "is",
    "IsNot": "is not",
}
