"""The travel agency: its ledger, with the program over its pipe."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent


class Ledger(unittest.TestCase):
    def test_a_line_cut_short_by_a_crash_does_not_garble_the_next_one(self):
        with tempfile.TemporaryDirectory() as folder:
            ledger = Path(folder) / "ledger.jsonl"
            whole = '{"kind": "reserve-seat", "number": "seat-1"}\n'
            ledger.write_text(whole + '{"kind": "reserve-se')
            answers = [answer(ledger, number) for number in (1, 2)]
            lines = ledger.read_text().splitlines()
        self.assertIn("<number>seat-2</number>", answers[0])
        self.assertIn("<number>seat-3</number>", answers[1])
        self.assertEqual([json.loads(line)["number"] for line in lines], ["seat-1", "seat-2", "seat-3"])

    def test_a_record_behind_a_part_of_another_one_keeps_its_number(self):
        with tempfile.TemporaryDirectory() as folder:
            ledger = Path(folder) / "ledger.jsonl"
            records = ['{"kind": "reserve-seat", "number": "seat-%d"}' % n for n in (1, 2)]
            cancelled = '{"kind": "cancel-seat", "number": "seat-7"}'
            ledger.write_text(f'{records[0]}\n{{"kind": "reserve-se{records[1]}\n{cancelled}\n')
            given = answer(ledger, 1)
        self.assertIn("<number>seat-3</number>", given)


def answer(ledger, number):
    """Starts the program for one delivery."""
    ran = subprocess.run(
        [sys.executable, str(HERE / "travel.py"), str(ledger)],
        input=delivery(number).encode() + b"\0", capture_output=True, timeout=120, check=True,
    )
    return ran.stdout.decode()


def delivery(number):
    key = f"0197a000-0000-7000-8000-{number:012}"
    payload = (
        '<reserve-seat xmlns="https://xml-pipeline.org/ns/travel/v1"><name>A</name><from>B</from>'
        "<to>C</to><leave>2026-12-01</leave><return>2026-12-03</return></reserve-seat>"
    )
    return (
        '<e:delivery xmlns:e="https://xml-pipeline.org/ns/envelope/v1" listener="flights" '
        f'thread="sess-k3v9t2m8" call="{key}" attempt="1.1" timeout="PT60S">'
        f'<e:message id="{key}" kind="call" seq="1" new="true"><e:meta><e:from>desk</e:from>'
        "<e:to>flights</e:to><e:thread>sess-k3v9t2m8</e:thread><e:time>2026-11-20T10:00:00Z"
        f"</e:time></e:meta>{payload}</e:message></e:delivery>"
    )


if __name__ == "__main__":
    unittest.main()
