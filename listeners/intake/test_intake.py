"""The intake: its checks one by one, its books, and the four programs with a stand-in for the pump."""

import hashlib
import os
import resource
import signal
import subprocess
import sys
import tempfile
import unittest
import uuid
import xml.etree.ElementTree as ET
from pathlib import Path
from unittest import mock

import checks
import make_invoices
from book import Book
from ubl import Invoice
from words import NS, fields

HERE = Path(__file__).resolve().parent
FULL = (HERE / "examples" / "full.xml").read_text()
XSI_TYPE = "{http://www.w3.org/2001/XMLSchema-instance}type"
ENVELOPE = "https://xml-pipeline.org/ns/envelope/v1"

FAULTS = [
    # in the example, this becomes that; then this is found at that place
    ("<cbc:DueDate>2026-04-01", "<cbc:DueDate>2026-03-01", "dates", "/Invoice/DueDate"),
    ('currencyID="EUR">200</cbc:Amount', 'currencyID="SEK">200</cbc:Amount', "currency",
     "/Invoice/AllowanceCharge[1]/Amount"),
    ('"C62">10<', '"C62">11<', "line-amount", "/Invoice/InvoiceLine[1]/LineExtensionAmount"),
    ('"HUR">2<', '"HUR">4<', "line-amount", "/Invoice/InvoiceLine[2]/LineExtensionAmount"),
    (">5000<", ">5000.01<", "line-sum", "/Invoice/LegalMonetaryTotal/LineExtensionAmount"),
    (">5100.00<", ">5000.00<", "net-total", "/Invoice/LegalMonetaryTotal/TaxExclusiveAmount"),
    ("TotalAmount currencyID=\"EUR\">100<", "TotalAmount currencyID=\"EUR\">999<", "net-total",
     "/Invoice/LegalMonetaryTotal/AllowanceTotalAmount"),
    ("TotalAmount currencyID=\"EUR\">200<", "TotalAmount currencyID=\"EUR\">20<", "net-total",
     "/Invoice/LegalMonetaryTotal/ChargeTotalAmount"),
    (">1000</cbc:TaxableAmount>", ">100</cbc:TaxableAmount>", "tax-total", "/Invoice/TaxTotal[1]"),
    (">4100.0<", ">4200.0<", "tax-amount", "/Invoice/TaxTotal[1]/TaxSubtotal[1]/TaxAmount"),
    (">1025.00<", ">1000.00<", "tax-total", "/Invoice/TaxTotal[1]/TaxAmount"),
    (">6125.00<", ">6126.00<", "gross-total", "/Invoice/LegalMonetaryTotal/TaxInclusiveAmount"),
    (">5125.50<", ">5125.00<", "payable", "/Invoice/LegalMonetaryTotal/PayableAmount"),
]


def found(text):
    invoice = Invoice(ET.fromstring(text.encode()))
    return checks.first_fault(checks.ON_RECEPTION + checks.ON_TOTALS, invoice)


class Checks(unittest.TestCase):
    def test_an_invoice_with_one_of_everything_has_no_fault(self):
        self.assertIsNone(found(FULL))

    def test_each_fault_is_found_at_its_place(self):
        for this, that, code, place in FAULTS:
            with self.subTest(code):
                self.assertIn(this, FULL)
                fault = found(FULL.replace(this, that, 1))
                self.assertIsNotNone(fault)
                self.assertEqual((fault.code, fault.place), (code, place))

    def test_a_reason_is_a_sentence_with_both_numbers(self):
        reason = found(FULL.replace(">5000<", ">5000.01<")).reason
        expected = "The lines add up to 5000.00, but the invoice says 5000.01."
        self.assertEqual(reason, expected)

    def test_categories_that_state_no_taxable_amount_need_not_cover_the_net_amount(self):
        amount = '<cbc:TaxableAmount currencyID="EUR">1000</cbc:TaxableAmount>'
        self.assertIn(amount, FULL)
        self.assertIsNone(found(FULL.replace(amount, "")))

    def test_only_the_categories_of_one_tax_must_cover_the_net_amount(self):
        fault = FULL.replace(">1000</cbc:TaxableAmount>", ">100</cbc:TaxableAmount>")
        self.assertEqual(found(fault).code, "tax-total")
        self.assertEqual(found(fault.replace(">VAT<", ">vat<")).code, "tax-total")
        exempt = fault.index("<cbc:ID>E<")
        sequence = "<cbc:CalculationSequenceNumeric>1</cbc:CalculationSequenceNumeric>"
        zero = '<cbc:TaxAmount currencyID="EUR">0</cbc:TaxAmount>'
        partial = f"<cac:TaxTotal>{zero}</cac:TaxTotal>"
        for valid in [
            fault[:exempt] + fault[exempt:].replace(">VAT<", ">GST<", 1),
            fault.replace(zero, zero + sequence),
            fault.replace("<cac:LegalMonetaryTotal>", f"{partial}<cac:LegalMonetaryTotal>"),
        ]:
            self.assertNotEqual(valid, fault)
            self.assertIsNone(found(valid))

    def test_a_category_at_a_standard_rate_may_differ_by_less_than_one(self):
        amount = ">1000</cbc:TaxableAmount>"
        for text, exact, is_valid in [("1000.99", False, True), ("1001", False, False),
                                      ("1000.01", True, False), ("1000.00", True, True)]:
            invoice = FULL.replace(amount, f">{text}</cbc:TaxableAmount>")
            if exact:
                invoice = invoice.replace("<cbc:ID>S<", "<cbc:ID>Z<")
            with self.subTest(text):
                self.assertEqual(found(invoice) is None, is_valid)

    def test_money_is_rounded_to_the_coins_of_its_currency(self):
        # 10.001 for 410 each is 4100.41, and yen have no cents.
        odd = FULL.replace('"C62">10<', '"C62">10.001<')
        self.assertEqual(found(odd).code, "line-amount")
        self.assertIn("is 4000.41.", found(odd).reason)
        self.assertIsNone(found(odd.replace("EUR", "JPY")))


class Books(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "new" / "book.jsonl"

    def tearDown(self):
        self.folder.cleanup()

    def test_a_message_makes_one_entry_however_often_it_comes(self):
        first = Book(self.path)
        made = first.enter("m1", number="7")
        self.assertEqual(first.enter("m1", number="7"), made)
        first.close()
        second = Book(self.path)
        self.assertEqual(second.enter("m1", number="7"), made)
        self.assertEqual(second.enter("m2", number="8")["entry"], 2)
        second.close()
        self.assertEqual(len(self.path.read_text().splitlines()), 2)

    def test_an_entry_cut_short_by_a_crash_is_forgotten(self):
        book = Book(self.path)
        book.enter("m1", number="7")
        book.close()
        whole = self.path.read_bytes()
        self.path.write_bytes(whole + b'{"entry": 2, "mess')
        book = Book(self.path)
        self.assertEqual(len(book.entries), 1)
        book.enter("m2", number="8")
        book.close()
        book = Book(self.path)
        self.assertEqual([entry["message"] for entry in book.entries], ["m1", "m2"])
        book.close()

    def assert_tries_again_once(self, book):
        """The book has `m1`, and a failed entry of `m2`, which is made now as if for the first time."""
        self.assertEqual([entry["message"] for entry in book.entries], ["m1"])
        self.assertEqual(book.enter("m2", number="8")["entry"], 2)
        book.close()
        book = Book(self.path)
        entries = [(entry["entry"], entry["message"]) for entry in book.entries]
        book.close()
        self.assertEqual(entries, [(1, "m1"), (2, "m2")])

    def test_an_entry_that_a_full_disk_cuts_short_is_written_once_when_there_is_room(self):
        book = Book(self.path)
        book.enter("m1", number="7")
        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.path.stat().st_size + 5, limits[1]))
        try:
            for _ in range(3):
                with self.assertRaises(OSError):
                    book.enter("m2", number="8")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            signal.signal(signal.SIGXFSZ, handler)
        self.assert_tries_again_once(book)

    def test_an_entry_that_may_not_be_on_the_disk_is_taken_back(self):
        book = Book(self.path)
        book.enter("m1", number="7")
        with mock.patch("os.fsync", side_effect=OSError("no disk")):
            with self.assertRaises(OSError):
                book.enter("m2", number="8")
        self.assert_tries_again_once(book)

    def test_a_book_that_cannot_take_back_an_entry_ends_its_process(self):
        program = (
            "import os, sys; from unittest import mock; from book import Book; book = Book(sys.argv[1])\n"
            "with mock.patch('os.fsync', side_effect=OSError):\n"
            "    book._file = mock.Mock(wraps=book._file, truncate=mock.Mock(side_effect=OSError('stuck')))\n"
            "    book.enter('m1')\n"
        )
        ended = subprocess.run(
            [sys.executable, "-c", program, self.path], cwd=HERE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(ended.returncode, 1)
        self.assertEqual(ended.stderr, "cannot take back an unfinished entry: stuck\n")

    def test_a_second_process_says_that_it_waits_for_the_book(self):
        book = Book(self.path)
        command = [sys.executable, "-c", "import sys; from book import Book; Book(sys.argv[1])"]
        second = subprocess.Popen(
            [*command, self.path], cwd=HERE, stderr=subprocess.PIPE, text=True)
        with second:
            reason = second.stderr.readline()
            book.close()
        self.assertIn("waiting for another process that has", reason)
        self.assertEqual(second.returncode, 0)


class Generator(unittest.TestCase):
    def test_the_same_seed_writes_the_same_documents(self):
        def digest(seed):
            text = "".join(text for _, text, _ in make_invoices.make(60, 20, seed))
            return hashlib.sha256(text.encode()).hexdigest()

        self.assertEqual(digest(7), digest(7))
        self.assertNotEqual(digest(7), digest(8))

    def test_the_broken_ones_are_broken_in_ten_ways(self):
        lines = [line for _, _, line in make_invoices.make(200, 50, 7)]
        refused = [line["by"] for line in lines if line["expect"] == "refused"]
        self.assertEqual((len(lines), len(refused)), (200, 50))
        counts = {by: refused.count(by) for by in refused}
        self.assertEqual(counts.pop("gate:schema-invalid"), 15)
        self.assertEqual(counts.pop("listener:totals"), 10)
        self.assertEqual(set(counts.values()), {5})
        self.assertEqual(len(counts), 5)


class Programs(unittest.TestCase):
    """The four listeners as processes, with a stand-in that carries their payloads."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.ledger = Path(self.folder.name) / "ledger.jsonl"
        self.rejects = Path(self.folder.name) / "rejects.jsonl"
        self.arguments = {"ledger": [self.ledger], "rejects": [self.rejects]}
        self.programs = {}

    def tearDown(self):
        for program in self.programs.values():
            program.stdin.close()
            self.assertEqual(program.wait(timeout=120), 0)
            program.stdout.close()
        self.folder.cleanup()

    def start(self, name):
        command = [sys.executable, str(HERE / f"{name}.py"), *map(str, self.arguments.get(name, []))]
        self.programs[name] = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )

    def ask(self, name, payload, key):
        if name not in self.programs:
            self.start(name)
        program = self.programs[name]
        program.stdin.write(delivery(name, payload, key).encode() + b"\0")
        answer = bytearray()
        while not answer.endswith(b"\0"):
            part = program.stdout.read(1 << 16)
            self.assertTrue(part, f"{name} ended without an answer")
            answer += part
        return answer[:-1].decode().partition(">")[2].removesuffix("</e:answer>")

    def send(self, document, key):
        """Carries a document from listener to listener; gives the final answer."""
        peers = {"Invoice": "totals", "booking": "ledger", "rejection": "rejects"}
        name, payload = "reception", document
        for step in range(5):
            payload = self.ask(name, payload, str(uuid.uuid5(uuid.NAMESPACE_URL, f"{key}/{step}")))
            name = peers.get(ET.fromstring(payload).tag.rpartition("}")[2])
            if name is None:
                return ET.fromstring(payload)
        self.fail("no end in five steps")

    def test_every_document_that_the_gate_lets_in_gets_the_answer_it_should(self):
        wrong, handled, refused = [], 0, 0
        for file, text, expected in make_invoices.make(100, 50, 7):
            if expected["by"].startswith("gate:"):
                continue
            answer = self.send(stripped(text), file)
            got = fields(answer)
            if answer.tag == NS + "invoice-accepted":
                handled += 1
                outcome = ("handled", "listener:ledger", "booked")
            else:
                refused += 1
                outcome = ("refused", "listener:" + got["by"], got["code"])
            if outcome != (expected["expect"], expected["by"], expected["reason"]):
                wrong.append((file, outcome, got))
        self.assertEqual(wrong, [])
        self.assertEqual((handled, refused), (50, 15))
        self.assertEqual(len(self.ledger.read_text().splitlines()), 50)
        self.assertEqual(len(self.rejects.read_text().splitlines()), 15)

    def handed_on(self, sent):
        """What `reception` hands on, which is the same document."""
        answer = self.ask("reception", sent, str(uuid.uuid4()))
        self.assertEqual(canonical(answer), canonical(sent))
        return answer

    def test_an_invoice_is_handed_on_with_its_line_ends_and_no_longer_than_it_came(self):
        sent = stripped(FULL)
        for part, changed in [
            ('<cbc:Note languageID="sv">Vi', '<cbc:Note languageID="sv">&#13;\nVi'),
            ('<any xmlns="urn:example:any"/>', '<any xmlns="urn:example:any"><plain xmlns=""/></any>'),
        ]:
            self.assertIn(part, sent)
            sent = sent.replace(part, changed)
        self.assertLess(len(self.handed_on(sent)), len(sent) + 100)

    def test_an_invoice_is_handed_on_with_the_prefixes_of_its_types(self):
        note = '<cbc:Note languageID="sv">Vi'
        self.assertIn(note, FULL)
        typed = ('<cbc:Note xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xmlns:b="urn:b" '
                 'xsi:type="b:NoteType">&#13;\nVi')
        self.handed_on(stripped(FULL.replace(note, typed)))

    def test_a_delivery_that_comes_again_has_no_second_effect(self):
        first = self.send(stripped(FULL), "once")
        again = self.send(stripped(FULL), "once")
        self.assertEqual(first.tag, NS + "invoice-accepted")
        self.assertEqual(ET.tostring(first), ET.tostring(again))
        # Also not after the ledger was killed in between.
        self.programs["ledger"].kill()
        self.programs["ledger"].wait()
        self.programs["ledger"].stdin.close()
        self.programs["ledger"].stdout.close()
        self.start("ledger")
        self.assertEqual(ET.tostring(first), ET.tostring(self.send(stripped(FULL), "once")))
        self.assertEqual(len(self.ledger.read_text().splitlines()), 1)
        # Another message with the same invoice is another matter.
        answer = self.send(stripped(FULL), "twice")
        self.assertEqual(fields(answer)["code"], "duplicate")
        self.assertIn("booked already, as entry 1", fields(answer)["reason"])


def canonical(text):
    return ET.canonicalize(text, rewrite_prefixes=True, qname_aware_attrs=[XSI_TYPE])


def stripped(text):
    """What the gate records: the root element and nothing around it."""
    text = text.lstrip("\ufeff")
    start = text.index("<Invoice") if "<Invoice" in text else text.index("<ubl:Invoice")
    return text[start:].rstrip()


def delivery(name, payload, key):
    return (
        f'<e:delivery xmlns:e="{ENVELOPE}" listener="{name}" thread="sess-k3v9t2m8" call="{key}" '
        f'attempt="1.1" timeout="PT60S"><e:message id="{key}" kind="call" seq="1" new="true">'
        f"<e:meta><e:from>inbox</e:from><e:to>{name}</e:to><e:thread>sess-k3v9t2m8</e:thread>"
        f"<e:time>2026-11-20T10:00:00Z</e:time></e:meta>{payload}</e:message></e:delivery>"
    )


if __name__ == "__main__":
    unittest.main()
