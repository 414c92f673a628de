"""Exact arithmetic on expressions: `evaluate(text)` gives a `Value` or raises `CalculationError`.

Python's own parser reads the expression; nothing of it is ever executed. Only the kinds of node
in the tables below mean anything, every number is a fraction, and every step is bounded.
"""

import ast
import math
import operator
from fractions import Fraction

EXPRESSION_CHARS_MAX = 1_000
#: Nested operations and calls.
DEPTH_MAX = 100
#: Of a numerator or a denominator: about 3,600 decimal digits.
BITS_MAX = 12_000
ROUND_DIGITS_MAX = 1_000
#: Digits shown of an exact value. Python writes no number with more than 4,300.
DIGITS_MAX = 4_000
#: Digits shown of a value that has no end, or is the root of no square.
SIGNIFICANT_DIGITS = 30

#: What people type for the operators.
_SIGNS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-"})


class CalculationError(Exception):
    """Why an expression has no value; `column` counts characters from 1, where known."""

    def __init__(self, message, column=None):
        super().__init__(message)
        self.message, self.column = message, column


class Value:
    """A fraction, and whether anything was rounded on the way to it."""

    def __init__(self, number, exact=True):
        self.number, self.exact = Fraction(number), exact

    @property
    def is_whole(self):
        return self.number.denominator == 1

    def shown(self):
        """The value in decimal digits, and whether they are all of it."""
        if self.exact and _has_end(self.number.denominator):
            scaled, places = _without_point(self.number)
            if abs(scaled) < 10**DIGITS_MAX:
                return _pointed(scaled, places), True
        return _some_digits(self.number), False


def evaluate(text):
    if len(text) > EXPRESSION_CHARS_MAX:
        raise CalculationError(f"an expression has at most {EXPRESSION_CHARS_MAX} characters")
    source = text.translate(_SIGNS).replace("\n", " ").replace("\r", " ").replace("\t", " ")
    leading = len(source) - len(source.lstrip())
    source = source.strip()
    if not source:
        raise CalculationError("the expression is empty; write one such as 2 * (3 + 4)")
    try:
        tree = ast.parse(source, mode="eval")
    except SyntaxError as error:
        column = (error.offset or 1) + leading
        raise CalculationError(f"not an expression: {error.msg}", column) from None
    except (ValueError, RecursionError, MemoryError):
        raise CalculationError("the expression is too deep or its numbers are too long") from None
    return _Evaluation(source, leading).value(tree.body, 0)


class _Evaluation:
    def __init__(self, source, leading):
        self.source, self.leading = source, leading

    def fail(self, message, node):
        before = self.source.encode()[: node.col_offset].decode(errors="ignore")
        raise CalculationError(message, len(before) + self.leading + 1)

    def value(self, node, depth):
        if depth > DEPTH_MAX:
            self.fail(f"operations are nested more than {DEPTH_MAX} deep", node)
        if isinstance(node, ast.Constant):
            return self.constant(node)
        if isinstance(node, ast.UnaryOp):
            return self.unary(node, depth)
        if isinstance(node, ast.BinOp):
            return self.binary(node, depth)
        if isinstance(node, ast.Call):
            return self.call(node, depth)
        if isinstance(node, ast.Tuple):
            self.fail("a comma is not part of a number; write 1000, not 1,000", node)
        if isinstance(node, ast.Name):
            self.fail(f"`{node.id}` is not known; only numbers and {_known()} are", node)
        self.fail("only numbers, + - * / // % **, parentheses and functions are understood", node)

    def constant(self, node):
        if type(node.value) not in (int, float):
            self.fail("only numbers have a value here", node)
        written = ast.get_source_segment(self.source, node)
        # The digits as they were written, not the nearest binary fraction.
        if type(node.value) is int:
            return self.bounded(Value(node.value), node)
        digits, _, exponent = written.replace("_", "").lower().partition("e")
        if exponent and abs(int(exponent)) > BITS_MAX // 4:
            self.fail("the number is too large", node)
        return self.bounded(Value(Fraction(digits + ("e" + exponent if exponent else ""))), node)

    def unary(self, node, depth):
        operand = self.value(node.operand, depth + 1)
        if isinstance(node.op, ast.USub):
            return Value(-operand.number, operand.exact)
        if isinstance(node.op, ast.UAdd):
            return operand
        self.fail("only + and - stand before a number", node)

    def binary(self, node, depth):
        left, right = self.value(node.left, depth + 1), self.value(node.right, depth + 1)
        if isinstance(node.op, ast.Pow):
            return self.power(left, right, node)
        if isinstance(node.op, ast.BitXor):
            self.fail("write ** for a power", node.right)
        operation = _OPERATIONS.get(type(node.op))
        if operation is None:
            self.fail("only + - * / // % ** stand between numbers", node.right)
        if right.number == 0 and isinstance(node.op, (ast.Div, ast.FloorDiv, ast.Mod)):
            self.fail("division by zero", node.right)
        result = Value(operation(left.number, right.number), left.exact and right.exact)
        return self.bounded(result, node)

    def power(self, base, exponent, node):
        if exponent.number == Fraction(1, 2):
            return self.root(base, node.left)
        if not exponent.is_whole:
            self.fail("an exponent is a whole number, or 0.5 for the square root", node.right)
        count = exponent.number.numerator
        if count < 0 and base.number == 0:
            self.fail("division by zero", node)
        if base.number not in (0, 1, -1) and _bits(base.number) * abs(count) > BITS_MAX * 2:
            self.fail("the power is too large", node.right)
        if base.number == -1:
            count %= 2
        elif base.number in (0, 1):
            count = min(abs(count), 1)
        return self.bounded(Value(base.number**count, base.exact and exponent.exact), node)

    def root(self, value, node):
        number = value.number
        if number < 0:
            self.fail("the square root of a negative number is not a number here", node)
        top, bottom = math.isqrt(number.numerator), math.isqrt(number.denominator)
        if top * top == number.numerator and bottom * bottom == number.denominator:
            return Value(Fraction(top, bottom), value.exact)
        # Enough digits behind the point that those shown, and one step more, are right.
        places = SIGNIFICANT_DIGITS * 2 + max(0, _bits(Fraction(1, number.denominator)) // 3)
        scaled = number.numerator * 10 ** (2 * places) // number.denominator
        return self.bounded(Value(Fraction(math.isqrt(scaled), 10**places), False), node)

    def call(self, node, depth):
        name = node.func.id if isinstance(node.func, ast.Name) else None
        function = _FUNCTIONS.get(name)
        if function is None or node.keywords:
            self.fail(f"the functions are {_known()}", node)
        arguments = node.args
        if len(arguments) == 1 and isinstance(arguments[0], (ast.List, ast.Tuple)):
            arguments = arguments[0].elts
        values = [self.value(argument, depth + 1) for argument in arguments]
        least, most = function
        if not least <= len(values) <= most:
            self.fail(f"{name} takes {_count(least, most)}", node)
        return self.bounded(self.apply(name, values, node), node)

    def apply(self, name, values, node):
        first = values[0]
        exact = all(value.exact for value in values)
        if name == "sqrt":
            return self.root(first, node)
        if name == "abs":
            return Value(abs(first.number), exact)
        if name == "round":
            return self.rounded(values, node)
        numbers = [value.number for value in values]
        return Value({"min": min, "max": max, "sum": sum}[name](numbers), exact)

    def rounded(self, values, node):
        digits = values[1].number if len(values) == 2 else Fraction(0)
        if digits.denominator != 1 or abs(digits) > ROUND_DIGITS_MAX:
            self.fail(f"round takes a whole number of digits up to {ROUND_DIGITS_MAX}", node)
        scale = Fraction(10) ** int(digits)
        scaled = abs(values[0].number) * scale
        whole = math.floor(scaled + Fraction(1, 2))
        sign = -1 if values[0].number < 0 else 1
        return Value(sign * whole / scale, all(value.exact for value in values))

    def bounded(self, value, node):
        if _bits(value.number) > BITS_MAX:
            self.fail("the number is too large", node)
        return value


_OPERATIONS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
#: Fewest and most arguments.
_MANY = EXPRESSION_CHARS_MAX
_FUNCTIONS = {
    "sqrt": (1, 1),
    "round": (1, 2),
    "abs": (1, 1),
    "min": (1, _MANY),
    "max": (1, _MANY),
    "sum": (1, _MANY),
}


def _known():
    *names, last = _FUNCTIONS
    return f"{', '.join(names)} and {last}"


def _count(least, most):
    if most == _MANY:
        return "one or more numbers"
    return "one number" if least == most else f"{least} to {most} numbers"


def _bits(number):
    return max(abs(number.numerator).bit_length(), number.denominator.bit_length())


def _has_end(denominator):
    for factor in (2, 5):
        while denominator % factor == 0:
            denominator //= factor
    return denominator == 1


def _without_point(number):
    """All digits of a number as a whole number, and how many of them stand behind the point."""
    places, denominator = 0, number.denominator
    while denominator > 1:
        # A power of ten that the denominator divides is near: one step for each factor.
        places += 1
        denominator //= math.gcd(denominator, 10)
    return number.numerator * 10**places // number.denominator, places


def _some_digits(number):
    if number == 0:
        return "0"
    whole_digits = len(str(abs(number.numerator) // number.denominator))
    small = abs(number) < 1
    places = max(0, SIGNIFICANT_DIGITS - (0 if small else whole_digits))
    if small:
        places += len(str(number.denominator // abs(number.numerator))) - 1
    scaled = math.floor(abs(number) * 10**places + Fraction(1, 2))
    return _pointed(-scaled if number < 0 else scaled, places)


def _pointed(scaled, places):
    """`scaled` with its point `places` from the right, without noughts behind its last digit."""
    digits = str(abs(scaled)).rjust(places + 1, "0")
    whole, part = (digits[:-places], digits[-places:].rstrip("0")) if places else (digits, "")
    sign = "-" if scaled < 0 else ""
    return f"{sign}{whole}.{part}" if part else f"{sign}{whole}"
