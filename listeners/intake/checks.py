"""What an invoice must satisfy beyond its schema. Each check gives the first fault, or None."""

from decimal import ROUND_HALF_UP, Decimal, localcontext

from words import Fault

_ZERO = Decimal(0)
_NET = "The lines with allowances and charges come to"


def first_fault(checks, invoice):
    with localcontext() as context:
        # The schema bounds a number at 24 digits: products and sums of them stay exact.
        context.prec = 100
        return next((fault for check in checks if (fault := check(invoice))), None)


def dates(invoice):
    due, issued = invoice.due_date, invoice.issue_date
    # Days of the same calendar sort as text; a time zone behind them does not count.
    if due and due[:10] < issued[:10]:
        reason = f"The invoice is due on {due}, before it was issued on {issued}."
        return Fault("dates", reason, invoice.one("DueDate").place)
    return None


def currency(invoice):
    """All amounts are in the document's currency, but for a tax total in the tax currency."""
    main = invoice.currency
    tax = invoice.one("TaxCurrencyCode")
    for node in _amounts(invoice):
        found = node.unit
        in_tax_currency = tax and found == tax.text and "/TaxTotal" in node.place
        if found != main and not in_tax_currency:
            reason = f"An amount is in {found}, but the invoice is in {main}."
            return Fault("currency", reason, node.place)
    return None


def line_amounts(invoice):
    """Each line is its quantity times its price, with what is taken off and put on."""
    for line in invoice.all("InvoiceLine"):
        price, quantity = line.amount("Price/PriceAmount"), line.amount("InvoicedQuantity")
        if price is None or quantity is None:
            continue
        base = line.amount("Price/BaseQuantity", Decimal(1)) or Decimal(1)
        expected = _rounded(quantity * price / base, invoice) + _charges(line)
        stated = line.one("LineExtensionAmount")
        if stated.number != expected:
            label = f"Line {line.one('ID').text}"
            working = f"{_plain(quantity)} at {_plain(price)}"
            working += f" for {_plain(base)}" if base != 1 else ""
            working += ", with its allowances and charges," if line.one("AllowanceCharge") else ""
            reason = f"{label} says {stated.text}, but {working} is {_plain(expected)}."
            return Fault("line-amount", reason, stated.place)
    return None


def line_sum(invoice):
    stated = invoice.one("LegalMonetaryTotal/LineExtensionAmount")
    total = _lines(invoice)
    return _differs("line-sum", stated, total, "The lines add up to")


def net_total(invoice):
    """The totals of allowances and of charges, and the net amount, are the sums of their parts."""
    totals = invoice.one("LegalMonetaryTotal")
    off, on = _allowances(invoice), _charged(invoice)
    return (
        _differs("net-total", totals.one("AllowanceTotalAmount"), off, "The allowances add up to")
        or _differs("net-total", totals.one("ChargeTotalAmount"), on, "The charges add up to")
        or _differs("net-total", totals.one("TaxExclusiveAmount"), _net(invoice), _NET)
    )


def tax_amounts(invoice):
    """Each category's tax is its rate of what falls under it, to the smallest coin."""
    for subtotal in _main_tax(invoice, "TaxSubtotal"):
        rate, taxable = subtotal.one("TaxCategory/Percent"), subtotal.one("TaxableAmount")
        stated = subtotal.one("TaxAmount")
        if rate is None or taxable is None:
            continue
        expected = _rounded(taxable.number * rate.number / 100, invoice)
        if abs(stated.number - expected) > _coin(invoice):
            text = f"{_plain(rate.number)} % of {taxable.text} is"
            return _differs("tax-amount", stated, expected, text)
    return None


def tax_total(invoice):
    """The tax is the sum of its categories."""
    for total in invoice.all("TaxTotal"):
        stated, parts = total.one("TaxAmount"), total.all("TaxSubtotal/TaxAmount")
        if parts and stated.unit == invoice.currency:
            expected = sum((part.number for part in parts), _ZERO)
            fault = _differs("tax-total", stated, expected, "The categories of tax add up to")
            if fault:
                return fault
    return None


def taxable_total(invoice):
    """The categories of VAT cover the net amount, if the invoice states no other tax."""
    totals = [t for t in invoice.all("TaxTotal") if t.one("TaxAmount").unit == invoice.currency]
    parts = [part for total in totals for part in total.all("TaxSubtotal")]
    if len(totals) != 1 or not parts or not _is_breakdown(parts):
        return None
    net, taxable = _net(invoice), sum((part.amount("TaxableAmount") for part in parts), _ZERO)
    # EN 16931 lets the amount of a category S, L or M differ by less than 1 (BR-S-08, BR-AF-08,
    # BR-AG-08).
    inexact = sum(part.one("TaxCategory/ID").text in ("S", "L", "M") for part in parts)
    if taxable == net or abs(taxable - net) < inexact:
        return None
    reason = f"{_NET} {_plain(net)}, but the categories of tax cover {_plain(taxable)}."
    return Fault("tax-total", reason, totals[0].place)


def _is_breakdown(parts):
    """Whether the subtotals divide one amount. Those of several taxes, or of a tax on a tax or on a
    quantity, may cover an amount twice or not at all."""
    for part in parts:
        category, scheme = part.one("TaxCategory/ID"), part.one("TaxCategory/TaxScheme/ID")
        # EN 16931 compares this name without regard to case.
        if category is None or scheme is None or scheme.text.upper() != "VAT":
            return False
        if part.one("TaxableAmount") is None:
            return False
        if part.one("CalculationSequenceNumeric") or part.one("PerUnitAmount"):
            return False
    return True


def gross_total(invoice):
    stated = invoice.one("LegalMonetaryTotal/TaxInclusiveAmount")
    return _differs("gross-total", stated, _gross(invoice), "Net amount and tax come to")


def payable(invoice):
    totals = invoice.one("LegalMonetaryTotal")
    expected = _gross(invoice) - totals.amount("PrepaidAmount", _ZERO)
    expected += totals.amount("PayableRoundingAmount", _ZERO)
    text = "The gross amount, less what was paid before, is"
    return _differs("payable", totals.one("PayableAmount"), expected, text)


def _differs(code, stated, expected, text):
    if stated is None or stated.number == expected:
        return None
    reason = f"{text} {_plain(expected)}, but the invoice says {stated.text}."
    return Fault(code, reason, stated.place)


def _lines(invoice):
    return sum((n.number for n in invoice.all("InvoiceLine/LineExtensionAmount")), _ZERO)


def _net(invoice):
    return _lines(invoice) + _charges(invoice)


def _gross(invoice):
    return _net(invoice) + sum((n.number for n in _main_tax(invoice, "TaxAmount")), _ZERO)


def _charges(node):
    """What is put on less what is taken off."""
    return _charged(node) - _allowances(node)


def _charged(node):
    return sum((c.amount("Amount") for c in node.all("AllowanceCharge") if _is_charge(c)), _ZERO)


def _allowances(node):
    return sum((c.amount("Amount") for c in node.all("AllowanceCharge") if not _is_charge(c)), _ZERO)


def _is_charge(allowance_or_charge):
    return allowance_or_charge.one("ChargeIndicator").text in ("true", "1")


def _main_tax(invoice, path):
    """Of the tax totals those in the document's currency."""
    for total in invoice.all("TaxTotal"):
        if total.one("TaxAmount").unit == invoice.currency:
            yield from total.all(path)


def _amounts(node):
    if node.unit:
        yield node
    seen = set()
    for child in node.element:
        local = child.tag.rpartition("}")[2] if isinstance(child.tag, str) else None
        if local and local not in seen:
            seen.add(local)
            for found in node.all(local):
                yield from _amounts(found)


def _coin(invoice):
    return Decimal(1).scaleb(-invoice.minor_digits)


def _rounded(amount, invoice):
    return amount.quantize(_coin(invoice), ROUND_HALF_UP)


def _plain(number):
    """Digits without an exponent."""
    return format(number, "f")


#: In the order they are tried: the first that fails says most.
ON_RECEPTION = (dates, currency)
ON_TOTALS = (line_amounts, line_sum, net_total, tax_amounts, tax_total, taxable_total,
             gross_total, payable)
