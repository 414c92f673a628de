"""Opens pages with calls that wait for a person in a real Chromium, while others decide.

Reads a line of JSON from standard input: `chromium` (the program), `address` (with its token), `call`
(the second of three calls that wait) and `thread` (of this call). Then it writes what is to happen
(`approve`: that call; `hold`: one more call), a line each, and reads a line when it has. Every other
line is a fault, and ends with exit code 1.
"""

import json
import sys

from playwright.sync_api import TimeoutError as Late
from walk import Walk, launched, open_with_token

CALLS = "#live-waiting > article.call"
LANE = "section.needs-you tbody tr"
ROWS = "#live-rows tbody tr"
EVENTS = "#live-events"


def happen(what):
    print(what, flush=True)
    sys.stdin.readline()


def is_live(page):
    page.wait_for_function(
        "() => document.getElementById('live-status').textContent.includes('Live.')"
    )


def counts_waiting(page, number):
    """Waits until the number beside the link to the calls that wait is `number`."""
    page.wait_for_function(
        "(number) => document.getElementById('waiting-count').textContent === number",
        arg=str(number),
    )


def watch(walk, view, page, call, thread):
    page.goto("/waiting")
    one = page.context.new_page()
    one.goto(f"/waiting?call={call}")
    lane = page.context.new_page()
    lane.goto("/threads")
    # A browser has few live pages, so the last one is of another browser.
    filtered = open_with_token(walk, view)
    filtered.goto("/threads?needs_you=on")
    # The value `off` is the same as no filter.
    unfiltered = filtered.context.new_page()
    unfiltered.goto("/threads?status=running&needs_you=off")
    conversation = page.context.new_page()
    conversation.goto(f"/threads/{thread}")
    pages = (page, one, lane)
    for each in (*pages, filtered, unfiltered, conversation):
        is_live(each)
    before = page.locator(CALLS).all_inner_texts()
    walk.expect(len(before) == 3, f"not three calls: {before}")
    walk.expect(one.locator(CALLS).count() == 1, "not one call on its own page")
    rows = lane.locator(LANE).count()
    walk.expect(rows == 3, f"not three threads in the lane: {rows}")
    mark = conversation.locator(f"{EVENTS} .mark").all_inner_texts()
    walk.expect(mark == ["waits for an approval"], f"not marked as waiting: {mark}")

    happen("approve")
    decided = f"article.call[aria-labelledby='call-{call}'].gone"
    for each in (page, one):
        each.locator(decided).wait_for()
        text = each.locator(decided).inner_text()
        walk.expect("waits no longer" in text and "Approve" not in text, f"not marked: {text}")
    lane.locator(f"{LANE}.gone").wait_for()
    filtered.locator(f"{ROWS}.gone").wait_for()
    text = filtered.locator(f"{ROWS}.gone").inner_text()
    walk.expect(thread in text and "waits no longer" in text, f"not marked: {text}")
    walk.expect(filtered.locator(ROWS).count() == 3, "the filtered list has moved")
    listed = unfiltered.get_by_role("region", name="Threads, newest first").locator("tr.gone")
    text = listed.inner_text()
    walk.expect(thread in text and "no longer in this list" in text, f"other mark: {text}")
    walk.expect(page.locator(CALLS).count() == 3, "the calls have moved")
    walk.expect(page.locator(f"{CALLS}:not(.gone) .buttons").count() == 2, "others lost buttons")
    walk.expect(lane.locator(LANE).count() == 3, "the lane has moved")
    marks = lane.locator(f"{LANE}.gone").all_inner_texts()
    walk.expect(len(marks) == 1 and "waits no longer" in marks[0], f"other marks: {marks}")
    for each in pages:
        counts_waiting(each, 2)
        walk.check(each, "decided elsewhere")

    # The call is above the entries of its approval. All of them are as on a loaded page.
    conversation.wait_for_function(
        "(events) => document.querySelector(`${events} [data-open]`) === null", arg=EVENTS
    )
    text = conversation.locator(EVENTS).inner_text()
    conversation.reload()
    loaded = conversation.locator(EVENTS).inner_text()
    walk.expect(text == loaded, f"a load shows something else: {text} {loaded}")
    walk.expect("waits for an approval" not in text, f"still marked as waiting: {text}")

    happen("hold")
    fresh = page.locator("#live-new:not([hidden])")
    fresh.wait_for()
    walk.expect(fresh.inner_text() == "1 new", f"not one new: {fresh.inner_text()}")
    counts_waiting(page, 3)
    # The new thread is missing in both tables of the list.
    listed = lane.locator("#live-new:not([hidden])")
    listed.wait_for()
    walk.expect(listed.inner_text() == "1 new", f"not one new thread: {listed.inner_text()}")
    fresh.click()
    walk.expect(page.locator(CALLS).count() == 3, "a click does not renew the list")
    walk.expect(page.locator(f"{CALLS}.gone").count() == 0, "a decided call is still there")


def main():
    order = json.loads(sys.stdin.readline())
    view = {"name": "waiting", "address": order["address"]}
    with launched(order["chromium"]) as browser:
        walk = Walk(browser, "/nonexistent")
        try:
            page = open_with_token(walk, view)
            page.context.set_default_timeout(60_000)
            watch(walk, view, page, order["call"], order["thread"])
        except Late as late:
            walk.fault(f"{page.url}: {late.message}")
    for fault in walk.faults:
        print("fault:", fault)
    sys.exit(1 if walk.faults else 0)


main()
