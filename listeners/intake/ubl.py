"""A UBL invoice as the checks want to see it. The gate has validated it: what the schema
requires is there, and numbers and dates are what they say they are."""

import xml.etree.ElementTree as ET
from decimal import Decimal

_BASE = "urn:oasis:names:specification:ubl:schema:xsd:"
UBL = f"{_BASE}Invoice-2"
CAC = f"{_BASE}CommonAggregateComponents-2"
CBC = f"{_BASE}CommonBasicComponents-2"
INVOICE = f"{{{UBL}}}Invoice"
_XSI_TYPE = "{http://www.w3.org/2001/XMLSchema-instance}type"

#: Digits behind the point, where they are not two.
_MINOR_DIGITS = {
    **dict.fromkeys("BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF".split(), 0),
    **dict.fromkeys("BHD IQD JOD KWD LYD OMR TND".split(), 3),
}

# No default namespace: an extension may hold elements without a namespace.
for _prefix, _namespace in (("ubl", UBL), ("cac", CAC), ("cbc", CBC)):
    ET.register_namespace(_prefix, _namespace)


class Node:
    """An element with the place where it stands, as steps from the root."""

    def __init__(self, element, place):
        self.element, self.place = element, place

    @property
    def text(self):
        return " ".join((self.element.text or "").split())

    @property
    def number(self):
        return Decimal(self.text)

    def all(self, path):
        """The elements at a path such as `TaxTotal/TaxAmount`; the last step may be many."""
        found = [self]
        for step in path.split("/"):
            found = [child for node in found for child in node._children(step)]
        return found

    def one(self, path):
        """The first of them, or None."""
        return next(iter(self.all(path)), None)

    def amount(self, path, default=None):
        found = self.one(path)
        return default if found is None else found.number

    @property
    def unit(self):
        """The currency of an amount; None for what is no amount."""
        return self.element.get("currencyID")

    def _children(self, local):
        same = [c for c in self.element if c.tag in (f"{{{CAC}}}{local}", f"{{{CBC}}}{local}")]
        for index, child in enumerate(same, 1):
            step = local if len(same) == 1 else f"{local}[{index}]"
            yield Node(child, f"{self.place}/{step}")


class Invoice(Node):
    def __init__(self, element):
        super().__init__(element, "/Invoice")
        self.number_node = self.one("ID")

    @property
    def number(self):
        return self.number_node.text

    @property
    def supplier(self):
        """The number the supplier is registered under, else its name."""
        places = ("PartyTaxScheme/CompanyID", "PartyLegalEntity/CompanyID", "EndpointID",
                  "PartyIdentification/ID", "PartyLegalEntity/RegistrationName", "PartyName/Name")
        found = (self.one(f"AccountingSupplierParty/Party/{place}") for place in places)
        return next((node.text for node in found if node and node.text), "unnamed supplier")

    @property
    def issue_date(self):
        return self.one("IssueDate").text

    @property
    def due_date(self):
        found = self.one("DueDate")
        return found.text if found else None

    @property
    def currency(self):
        return self.one("DocumentCurrencyCode").text

    @property
    def payable(self):
        return self.one("LegalMonetaryTotal/PayableAmount").text

    @property
    def minor_digits(self):
        return _MINOR_DIGITS.get(self.currency, 2)


def handed_on(element):
    """An invoice to return from a handler: a text that declares each namespace once.

    The kit declares a namespace at each element that changes it, which can double the size. But only
    the kit keeps the prefixes in values, so an invoice that names types is returned as its element.
    """
    if any(_XSI_TYPE in node.attrib for node in element.iter()):
        return element
    element.tail = None
    return ET.tostring(element, encoding="unicode").replace("\r", "&#13;")
