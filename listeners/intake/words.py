"""What the listeners of the intake say to each other: the payloads of `schema/intake.xsd`."""

import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "python"))

import organism_listener as listener  # noqa: E402

NS = "{https://xml-pipeline.org/ns/intake/v1}"


@dataclass(frozen=True)
class Fault:
    """What is wrong with an invoice: a code of the schema, a sentence for the supplier, a place."""

    code: str
    reason: str
    place: str


def rejection(invoice, by, fault):
    """Asks `rejects` to file an invoice; `invoice` has a `number` and a `supplier`."""
    return _element("rejection", number=invoice.number, supplier=invoice.supplier, by=by,
                    code=fault.code, reason=fault.reason, place=fault.place)


def booking(invoice):
    fields = {"number": invoice.number, "supplier": invoice.supplier,
              "issue_date": invoice.issue_date}
    if invoice.due_date:
        fields["due_date"] = invoice.due_date
    return _element("booking", **fields, currency=invoice.currency, payable=invoice.payable)


def accepted(entry):
    return _element("invoice-accepted", number=entry["number"], supplier=entry["supplier"],
                    currency=entry["currency"], payable=entry["payable"], entry=entry["entry"])


def rejected(entry):
    names = ("number", "supplier", "by", "code", "reason", "place")
    return _element("invoice-rejected", **{name: entry[name] for name in names})


def fields(payload):
    """The child elements of one of these payloads as a dictionary."""
    return {child.tag.removeprefix(NS): (child.text or "").strip() for child in payload}


def _element(local, **children):
    made = [listener.element(NS + name, text) for name, text in children.items()]
    return listener.element(NS + local, children=made)
