"""The calculator listener: answers `calculate` with `result` or `calculation-failed`."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "python"))

import organism_listener as listener  # noqa: E402
from evaluate import CalculationError, evaluate  # noqa: E402

NS = "{https://xml-pipeline.org/ns/calculator/v1}"


@listener.accepts(NS + "calculate")
def calculate(request):
    try:
        value, exact = evaluate(request.text("expression")).shown()
    except CalculationError as error:
        attributes = {} if error.column is None else {"column": error.column}
        message = listener.element(NS + "message", error.message)
        return listener.element(NS + "calculation-failed", None, attributes, [message])
    attributes = {"exact": "true" if exact else "false"}
    return listener.element(NS + "result", None, attributes, [listener.element(NS + "value", value)])


if __name__ == "__main__":
    listener.serve()
