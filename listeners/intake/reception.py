"""reception: takes each invoice, checks it as a document, and hands it on to be added up."""

import checks
from ubl import INVOICE, Invoice, handed_on
from words import listener, rejection


@listener.accepts(INVOICE)
def receive(request):
    invoice = Invoice(request.payload)
    fault = checks.first_fault(checks.ON_RECEPTION, invoice)
    return rejection(invoice, request.listener, fault) if fault else handed_on(request.payload)


if __name__ == "__main__":
    listener.serve()
