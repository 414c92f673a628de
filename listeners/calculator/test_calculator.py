"""The calculator: its arithmetic, its refusals, and the program over its pipe."""

import subprocess
import sys
import time
import unittest
from pathlib import Path

from evaluate import CalculationError, evaluate

HERE = Path(__file__).resolve().parent

VALUES = [
    # expression, digits, exact
    ("0.1 + 0.2", "0.3", True),
    ("1.10 * 3", "3.3", True),
    ("2 ** 10", "1024", True),
    ("2 ** -2", "0.25", True),
    ("-2 ** 2", "-4", True),
    ("(-8) // 3", "-3", True),
    ("-7 % 3", "2", True),
    ("10 / 4", "2.5", True),
    ("1 / 3", "0." + "3" * 30, False),
    ("2 / 3", "0." + "6" * 29 + "7", False),
    ("1 / 3 * 3", "1", True),
    ("1 / 300", "0.00" + "3" * 30, False),
    ("1e3 + 1_000", "2000", True),
    ("1.5e-3", "0.0015", True),
    ("0xff", "255", True),
    ("sqrt(16)", "4", True),
    ("sqrt(0.25)", "0.5", True),
    ("sqrt(2)", "1.41421356237309504880168872421", False),
    ("2 ** 0.5", "1.41421356237309504880168872421", False),
    ("round(2.5)", "3", True),
    ("round(-2.5)", "-3", True),
    ("round(2.675, 2)", "2.68", True),
    ("round(1234, -2)", "1200", True),
    ("min(3, 1, 2) + max([4, 5])", "6", True),
    ("sum(0.1, 0.2, 0.3)", "0.6", True),
    ("abs(-3.50)", "3.5", True),
    ("3 × 4 ÷ 6 − 1", "1", True),
    ("  1 +\n 1 ", "2", True),
    ("1 ** 99999999999", "1", True),
    ("0 * 5", "0", True),
    ("(-1) ** 100001", "-1", True),
]

REFUSED = [
    # expression, part of the reason, column
    ("", "empty", None),
    ("1 +", "not an expression", None),
    ("1 / 0", "division by zero", 5),
    ("5 % (2 - 2)", "division by zero", 6),
    ("0 ** -1", "division by zero", 1),
    ("1,000 + 1", "1000, not 1,000", 1),
    ("2 ^ 3", "** for a power", 5),
    ("x + 1", "`x` is not known", 1),
    ("__import__('os')", "the functions are sqrt", 1),
    ("(1).real", "only numbers", 1),
    ("'a' * 3", "only numbers have a value", 1),
    ("True + 1", "only numbers have a value", 1),
    ("1j", "only numbers have a value", 1),
    ("1 < 2", "are understood", 1),
    ("lambda: 1", "are understood", 1),
    ("9 ** 9 ** 9", "too large", 6),
    ("10 ** 4000 * 10 ** 4000", "too large", None),
    ("1e999999", "too large", 1),
    ("2 ** 0.3", "whole number", 6),
    ("sqrt(-1)", "negative", 1),
    ("sqrt()", "takes one number", 1),
    ("round(1, 2, 3)", "takes 1 to 2 numbers", 1),
    ("round(1, 5000)", "whole number of digits", 1),
    ("ä + 1", "`ä` is not known", 1),
    ("1 + ä", "`ä` is not known", 5),
    ("-" * 900 + "1", "deep", None),
    ("(" * 400 + "1" + ")" * 400, "parentheses", None),
    ("9" * 5000, "at most 1000 characters", None),
]


class Arithmetic(unittest.TestCase):
    def test_values_are_exact(self):
        for text, digits, exact in VALUES:
            with self.subTest(text):
                self.assertEqual(evaluate(text).shown(), (digits, exact))

    def test_an_exact_value_with_more_digits_than_are_shown_is_rounded(self):
        for text in ("0.5 ** 11000", "2 ** -11000", "-1 / 2 ** 11000", "10 ** 3000 + 0.5 ** 2000"):
            with self.subTest(text):
                digits, exact = evaluate(text).shown()
                self.assertFalse(exact)
                self.assertLess(len(digits), 4_000)
        digits, _ = evaluate("0.5 ** 11000").shown()
        self.assertEqual(digits, "0." + "0" * 3311 + "467786512921134062707655071301")

    def test_what_has_no_value_is_refused_with_a_reason_and_a_place(self):
        for text, reason, column in REFUSED:
            with self.subTest(text[:40]):
                with self.assertRaises(CalculationError) as refused:
                    evaluate(text)
                self.assertIn(reason, refused.exception.message)
                if column is not None:
                    self.assertEqual(refused.exception.column, column)

    def test_nothing_takes_long(self):
        costly = ["9**3000 * 7**3000", "*".join(["9**2000"] * 90), "sqrt(" * 90 + "2" + ")" * 90]
        began = time.monotonic()
        for text in costly:
            try:
                evaluate(text).shown()
            except CalculationError:
                pass
        self.assertLess(time.monotonic() - began, 2)


class Program(unittest.TestCase):
    def answer(self, *expressions):
        frames = "".join(delivery(text) + "\0" for text in expressions)
        ran = subprocess.run(
            [sys.executable, str(HERE / "calculator.py")],
            input=frames.encode(), capture_output=True, timeout=120, check=True,
        )
        answers = ran.stdout.decode().split("\0")[:-1]
        return [answer.partition(">")[2].removesuffix("</e:answer>") for answer in answers]

    def test_a_value_and_a_failure_are_payloads(self):
        value, failure = self.answer("0.1 + 0.2", "1 / 0")
        namespace = 'xmlns="https://xml-pipeline.org/ns/calculator/v1"'
        self.assertEqual(value, f'<result {namespace} exact="true"><value>0.3</value></result>')
        self.assertEqual(
            failure,
            f'<calculation-failed {namespace} column="5">'
            "<message>division by zero</message></calculation-failed>",
        )


def delivery(expression):
    key = "0197a000-0000-7000-8000-000000000001"
    payload = (
        '<calculate xmlns="https://xml-pipeline.org/ns/calculator/v1">'
        f"<expression>{expression}</expression></calculate>"
    )
    return (
        '<e:delivery xmlns:e="https://xml-pipeline.org/ns/envelope/v1" listener="calculator" '
        f'thread="sess-k3v9t2m8" call="{key}" attempt="1.1" timeout="PT60S">'
        f'<e:message id="{key}" kind="call" seq="1" new="true"><e:meta><e:from>desk</e:from>'
        "<e:to>calculator</e:to><e:thread>sess-k3v9t2m8</e:thread><e:time>2026-11-20T10:00:00Z"
        f"</e:time></e:meta>{payload}</e:message></e:delivery>"
    )


if __name__ == "__main__":
    unittest.main()
