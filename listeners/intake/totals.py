"""totals: adds each invoice up; what comes out as stated is booked, the rest is rejected."""

import checks
from ubl import INVOICE, Invoice
from words import booking, listener, rejection


@listener.accepts(INVOICE)
def add_up(request):
    invoice = Invoice(request.payload)
    fault = checks.first_fault(checks.ON_TOTALS, invoice)
    return rejection(invoice, request.listener, fault) if fault else booking(invoice)


if __name__ == "__main__":
    listener.serve()
