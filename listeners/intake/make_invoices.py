"""Writes UBL invoices to send through the intake, and what is to become of each.

    make_invoices.py OUTDIR --count 1000 --broken 50 --seed 7

The same arguments write the same bytes. MANIFEST.jsonl has a line for each document:
`{"file", "expect": "handled" | "refused", "by": "gate:RULE" | "listener:NAME", "reason"}`, where
`by` and `reason` say who is to refuse it and with which code, or who answers.
"""

import argparse
import json
import random
import sys
from datetime import date, timedelta
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from xml.sax.saxutils import escape

from ubl import CAC, CBC, UBL

_COMPANIES = [
    # name, VAT number, street, city, zone, country
    ("Åkerlund & Rask AB", "SE556677889901", "Storgatan 5", "Göteborg", "411 24", "SE"),
    ("Weiß Anlagenbau GmbH", "DE129273398", "Lindenstraße 12", "Köln", "50674", "DE"),
    ("Dupré et Fils SARL", "FR40303265045", "8 rue de l'Église", "Lyon", "69002", "FR"),
    ("O'Malley Freight Ltd", "IE6388047V", "2 Quay Street", "Galway", "H91 W2N8", "IE"),
    ("Nowak Łożyska Sp. z o.o.", "PL5260001246", "ul. Długa 7", "Gdańsk", "80-827", "PL"),
    ("Costa <Moldes> Lda", "PT501964843", "Rua da Prata 80", "Lisboa", "1100-420", "PT"),
    ("Παπαδόπουλος ΑΕ", "EL094014298", "Ερμού 21", "Αθήνα", "105 63", "GR"),
    ("Fjordkraft Verktøy AS", "NO923829644MVA", "Havnegata 3", "Bergen", "5003", "NO"),
]
_BUYER = ("Hartmann & Lind Group", "DK13585628", "Havnegade 1", "København", "1058", "DK")
_GOODS = [
    # description, unit, price
    ("Ball bearing 6204-2RS", "C62", "4.15"),
    ("Hydraulic hose 3/8\" <high pressure>", "MTR", "12.90"),
    ("Assembly & commissioning", "HUR", "96.50"),
    ("Schrauben M8×40, verzinkt", "C62", "0.0725"),
    ("Stainless sheet 2 mm", "KGM", "7.335"),
    ("Freight", "C62", "148.00"),
    ("Service contract, one month", "MON", "419.00"),
    ("Grease, 400 g cartridge", "C62", "6.05"),
]
_CURRENCIES = {"EUR": 2, "SEK": 2, "DKK": 2, "NOK": 2, "PLN": 2, "USD": 2, "JPY": 0, "KWD": 3}
_RATES = ["25", "21", "19", "12", "5.5"]


class Document:
    """One invoice: what it is made of, so that a fault can be put in before it is written."""

    def __init__(self, rng, number):
        self.number = number
        self.supplier = rng.choice(_COMPANIES)
        self.issued = date(2026, 1, 1) + timedelta(days=rng.randrange(300))
        self.due = self.issued + timedelta(days=rng.choice([0, 10, 14, 30, 60]))
        self.currency = rng.choice(["EUR"] * 6 + list(_CURRENCIES))
        self.coin = Decimal(1).scaleb(-_CURRENCIES[self.currency])
        self.prefix = rng.random() < 0.25
        self.declared = rng.random() < 0.9
        self.crlf = rng.random() < 0.1
        self.bom = rng.random() < 0.05
        self.lines = [_line(rng, self) for _ in range(rng.choice([1, 1, 2, 3, 5, 8, 20]))]
        self.allowance = self._money(Decimal(rng.randrange(1, 50))) if rng.random() < 0.2 else None
        self.prepaid = self._money(Decimal(rng.randrange(1, 20))) if rng.random() < 0.1 else None
        self.note = rng.choice([None, None, "Thank you & come again", "Lieferung frei Haus; 5 < 6"])
        self._add_up()

    def _money(self, amount):
        return amount.quantize(self.coin, ROUND_HALF_UP)

    def _add_up(self):
        self.line_sum = sum((line["amount"] for line in self.lines), Decimal(0))
        taxable = {}
        for line in self.lines:
            taxable[line["rate"]] = taxable.get(line["rate"], Decimal(0)) + line["amount"]
        if self.allowance is not None:
            taxable[self.lines[0]["rate"]] -= self.allowance
        self.taxes = [
            (rate, base, self._money(base * Decimal(rate) / 100))
            for rate, base in sorted(taxable.items())
        ]
        self.net = self.line_sum - (self.allowance or 0)
        self.tax = sum((tax for _, _, tax in self.taxes), Decimal(0))
        self.gross = self.net + self.tax
        self.payable = self.gross - (self.prepaid or 0)

    def text(self):
        tag = "ubl:Invoice" if self.prefix else "Invoice"
        bound = "xmlns:ubl" if self.prefix else "xmlns"
        opening = f'<{tag} {bound}="{UBL}" xmlns:cac="{CAC}" xmlns:cbc="{CBC}">'
        head = '<?xml version="1.0" encoding="UTF-8"?>\n' if self.declared else ""
        body = "\n".join(_indented(self._parts()))
        text = f"{head}{opening}\n{body}\n</{tag}>\n"
        text = text.replace("\n", "\r\n") if self.crlf else text
        return "\ufeff" + text if self.bom else text

    def _parts(self):
        basic = [
            ("CustomizationID", "urn:cen.eu:en16931:2017"),
            ("ID", self.number),
            ("IssueDate", self.issued),
            ("DueDate", self.due),
            ("InvoiceTypeCode", 380),
            ("Note", self.note),
            ("DocumentCurrencyCode", self.currency),
            ("BuyerReference", "PO-" + self.number[-4:]),
        ]
        parts = [_basic(name, value) for name, value in basic if value is not None]
        parts += _party("AccountingSupplierParty", self.supplier)
        parts += _party("AccountingCustomerParty", _BUYER)
        if self.allowance is not None:
            parts += self._allowance()
        parts += self._tax_total() + self._monetary_total()
        for index, line in enumerate(self.lines, 1):
            parts += self._invoice_line(index, line)
        return parts

    def _allowance(self):
        return _aggregate(
            "AllowanceCharge",
            _basic("ChargeIndicator", "false"),
            _basic("AllowanceChargeReason", "Discount"),
            self._amount("Amount", self.allowance),
            *_tax_category("TaxCategory", self.lines[0]["rate"]),
        )

    def _tax_total(self):
        subtotals = []
        for rate, base, tax in self.taxes:
            subtotals += _aggregate(
                "TaxSubtotal",
                self._amount("TaxableAmount", base),
                self._amount("TaxAmount", tax),
                *_tax_category("TaxCategory", rate),
            )
        return _aggregate("TaxTotal", self._amount("TaxAmount", self.tax), *subtotals)

    def _monetary_total(self):
        amounts = [
            ("LineExtensionAmount", self.line_sum),
            ("TaxExclusiveAmount", self.net),
            ("TaxInclusiveAmount", self.gross),
            ("AllowanceTotalAmount", self.allowance),
            ("PrepaidAmount", self.prepaid),
            ("PayableAmount", self.payable),
        ]
        stated = (self._amount(name, amount) for name, amount in amounts if amount is not None)
        return _aggregate("LegalMonetaryTotal", *stated)

    def _invoice_line(self, index, line):
        return _aggregate(
            "InvoiceLine",
            _basic("ID", index),
            _basic("InvoicedQuantity", line["quantity"], unitCode=line["unit"]),
            self._amount("LineExtensionAmount", line["amount"]),
            *_aggregate(
                "Item",
                _basic("Name", line["name"]),
                *_tax_category("ClassifiedTaxCategory", line["rate"]),
            ),
            *_aggregate("Price", self._amount("PriceAmount", line["price"])),
        )

    def _amount(self, name, amount):
        return _basic(name, format(amount, "f"), currencyID=self.currency)


def _line(rng, document):
    name, unit, price = rng.choice(_GOODS)
    quantity = Decimal(rng.randrange(1, 400))
    if unit in ("HUR", "KGM", "MTR"):
        quantity = quantity / 4
    price = Decimal(price)
    amount = (quantity * price).quantize(document.coin, ROUND_HALF_UP)
    rate = rng.choice(_RATES)
    return dict(name=name, unit=unit, price=price, quantity=quantity, amount=amount, rate=rate)


def _basic(name, value, **attributes):
    written = "".join(f' {key}="{value}"' for key, value in attributes.items())
    return f"<cbc:{name}{written}>{escape(str(value))}</cbc:{name}>"


def _aggregate(name, *parts):
    return [f"<cac:{name}>", *parts, f"</cac:{name}>"]


def _tax_category(name, rate):
    scheme = _aggregate("TaxScheme", _basic("ID", "VAT"))
    return _aggregate(name, _basic("ID", "S"), _basic("Percent", rate), *scheme)


def _party(role, company):
    name, number, street, city, zone, country = company
    scheme = _aggregate("TaxScheme", _basic("ID", "VAT"))
    return _aggregate(
        role,
        *_aggregate(
            "Party",
            *_aggregate("PartyName", _basic("Name", name)),
            *_aggregate(
                "PostalAddress",
                _basic("StreetName", street),
                _basic("CityName", city),
                _basic("PostalZone", zone),
                *_aggregate("Country", _basic("IdentificationCode", country)),
            ),
            *_aggregate("PartyTaxScheme", _basic("CompanyID", number), *scheme),
            *_aggregate("PartyLegalEntity", _basic("RegistrationName", name)),
        ),
    )


def _indented(parts):
    depth = 1
    for part in parts:
        depth -= part.startswith("</")
        yield "  " * depth + part
        depth += part.startswith("<cac:")


# Ten ways to break an invoice: each gives the text, who refuses it, and with which code.


def _not_well_formed(document, _rng):
    return document.text().replace("</cac:Party>", "", 1), "gate:not-well-formed", "not-well-formed"


def _two_roots(document, _rng):
    return document.text() + '<Invoice xmlns="urn:second"/>\n', "gate:not-one-root", "not-one-root"


def _doctype(document, _rng):
    document.bom, document.declared, document.note = False, False, "see ENTITY"
    text = document.text().replace("see ENTITY", "see &terms;")
    doctype = '<!DOCTYPE Invoice [<!ENTITY terms SYSTEM "file:///etc/passwd">]>\n'
    return doctype + text, "gate:forbidden", "forbidden"


def _wrong_namespace(document, _rng):
    text = document.text().replace(UBL, UBL.replace("Invoice-2", "Invoice-3"), 1)
    return text, "gate:not-in-vocabulary", "not-in-vocabulary"


def _missing_element(document, rng):
    name = rng.choice(["ID", "IssueDate", "DocumentCurrencyCode", "PayableAmount"])
    lines = document.text().splitlines(keepends=True)
    first = next(i for i, line in enumerate(lines) if line.lstrip().startswith(f"<cbc:{name}"))
    return "".join(lines[:first] + lines[first + 1:]), "gate:schema-invalid", "schema-invalid"


def _bad_date(document, rng):
    document.issued = rng.choice(["2026-02-30", "12.03.2026", "2026-13-01", "yesterday"])
    return document.text(), "gate:schema-invalid", "schema-invalid"


def _bad_currency(document, rng):
    document.currency = rng.choice(["EURO", "eur", "XYZ", ""])
    return document.text(), "gate:schema-invalid", "schema-invalid"


def _wrong_line_sum(document, rng):
    document.line_sum += rng.choice([-1, 1]) * (document.coin * rng.randrange(1, 500))
    return document.text(), "listener:totals", "line-sum"


def _wrong_tax_total(document, rng):
    document.tax += rng.choice([-1, 1]) * (document.coin * rng.randrange(1, 500))
    return document.text(), "listener:totals", "tax-total"


def _duplicate(document, _rng):
    return document.text(), "listener:ledger", "duplicate"


BREAKERS = [
    _not_well_formed, _two_roots, _doctype, _wrong_namespace, _missing_element,
    _bad_date, _bad_currency, _wrong_line_sum, _wrong_tax_total, _duplicate,
]


def make(count, broken, seed):
    """Gives `(file name, text, manifest line)` for each document."""
    rng = random.Random(seed)
    kinds = [BREAKERS[index % len(BREAKERS)] for index in range(broken)]
    duplicates = kinds.count(_duplicate)
    if count < broken + duplicates:
        raise ValueError(f"{broken} broken documents of {count} leave too few good ones")
    others = [kind for kind in kinds if kind is not _duplicate]
    # A duplicate comes after what it repeats, far enough that no order of handling swaps them.
    places = rng.sample(range(duplicates, count - duplicates), len(others))
    broken_at = dict(zip(places, others))
    broken_at.update((count - 1 - index, _duplicate) for index in range(duplicates))
    width = max(4, len(str(count)))
    firsts = []
    for index in range(count):
        document = Document(rng, f"INV-2026-{index + 1:0{width}}")
        file = f"invoice-{index + 1:0{width}}.xml"
        kind = broken_at.get(index)
        if kind is None:
            firsts.append(document)
            yield file, document.text(), _expected(file, "handled", "listener:ledger", "booked")
            continue
        if kind is _duplicate:
            earlier = firsts[count - 1 - index]
            document.number, document.supplier = earlier.number, earlier.supplier
        text, by, reason = kind(document, rng)
        yield file, text, _expected(file, "refused", by, reason)


def _expected(file, expect, by, reason):
    return {"file": file, "expect": expect, "by": by, "reason": reason}


def main():
    options = argparse.ArgumentParser(description="Write UBL invoices and what becomes of each.")
    options.add_argument("outdir", type=Path)
    options.add_argument("--count", type=int, default=1000)
    options.add_argument("--broken", type=int, default=50)
    options.add_argument("--seed", type=int, default=7)
    chosen = options.parse_args()
    try:
        documents = list(make(chosen.count, chosen.broken, chosen.seed))
    except ValueError as error:
        sys.exit(str(error))
    chosen.outdir.mkdir(parents=True, exist_ok=True)
    with open(chosen.outdir / "MANIFEST.jsonl", "w", encoding="utf-8") as manifest:
        for file, text, expected in documents:
            (chosen.outdir / file).write_bytes(text.encode())
            manifest.write(json.dumps(expected) + "\n")


if __name__ == "__main__":
    main()
