"""Opens live pages of a web view in a real Chromium.

Reads a line of JSON from standard input: `chromium` (the program), `address` (with its token) and
`thread` (the id of a thread that a model will write in). Then it writes what is to happen (`send`:
one more thread; `write`: the model begins to write; `wait`: the model has finished), a line each, and
reads a line when it has. Every other line is a fault, and ends with exit code 1.
"""

import json
import sys
from urllib.parse import urlsplit

from playwright.sync_api import TimeoutError as Late
from walk import Walk, launched, open_with_token, open_without_script

ROWS = "#live-rows table tbody tr"


def happen(what):
    print(what, flush=True)
    sys.stdin.readline()


def shows(page, selector, text):
    """Waits until an element contains a text."""
    page.wait_for_function(
        "([selector, text]) => { const all = Array.from(document.querySelectorAll(selector));"
        " return all.some((one) => !one.hidden && one.textContent.includes(text)); }",
        arg=[selector, text],
    )


def watch_list(walk, view, page):
    other = page.context.new_page()
    other.goto("/threads")
    for one in (page, other):
        shows(one, "#live-status", "Live.")
    first = page.locator(ROWS).first.inner_text()
    rows = page.locator(ROWS).count()

    happen("send")
    shows(page, "#live-new", "1 new")
    walk.expect(page.locator(ROWS).first.inner_text() == first, "a new thread moves the rows")
    page.locator("#live-new").click()
    walk.expect(page.locator(ROWS).count() == rows + 1, "a click shows no new row")
    walk.expect(page.locator("#live-new").is_hidden(), "the new row is still announced")

    # A paused page stays as it is; the other page shows that the server has reported the growth.
    page.keyboard.press("p")
    shows(page, "#live-status", "This page does not update.")
    other.locator("#live-new").click()
    happen("send")
    shows(other, "#live-new", "1 new")
    walk.expect(page.locator("#live-new").is_hidden(), "a paused page is not still")
    page.get_by_role("button", name="Update again").click()
    shows(page, "#live-new", "1 new")
    walk.check(page, "live list")
    other.close()


def watch_failed_load(walk, page):
    """The first load of an open page fails, as while the server makes its index."""
    other = page.context.new_page()
    loads = []

    def answer(route):
        if "x-live-version" not in route.request.headers:
            route.continue_()
            return
        loads.append(route.request.url)
        if len(loads) == 1:
            route.fulfill(status=503, body="Not indexed yet")
        else:
            route.continue_()

    other.route(lambda url: urlsplit(url).path == "/threads", answer)
    other.goto("/threads")
    shows(other, "#live-status", "Not live: the page could not be loaded.")
    # Nothing grows meanwhile: the page loads again by itself.
    shows(other, "#live-status", "Live.")
    walk.expect(len(loads) > 1, f"loads of the page: {loads}")
    other.close()


def watch_slow_load(page):
    """A load of an open page gets no response. The page's script does not wait without end."""
    other = page.context.new_page()
    # A twentieth of the limit of a load. A load that ends much earlier may never reach `answer` in a browser
    # that is slow.
    other.add_init_script(
        "const limit = AbortSignal.timeout.bind(AbortSignal);"
        "AbortSignal.timeout = (ms) => limit(ms / 20);"
    )

    def is_load(request):
        return "x-live-version" in request.headers

    def answer(route):
        if not is_load(route.request):
            route.continue_()

    other.route(lambda url: urlsplit(url).path == "/threads", answer)
    with other.expect_request(is_load):
        other.goto("/threads")
    shows(other, "#live-status", "Not live: the page could not be loaded.")
    other.close()


def watch_many_pages(walk, page):
    """A browser with more windows than it may have live pages. All of them can load pages."""
    page.goto("/threads")
    shows(page, "#live-status", "Live.")
    live = [page.context.new_page() for _ in range(3)]
    stale = [page.context.new_page() for _ in range(2)]
    for other in (*live, *stale):
        other.goto("/threads")
        reason = "Live." if other in live else "Not live: too many pages are live"
        shows(other, "#live-status", reason)
    for one in (page, *live, *stale):
        status = one.evaluate("async () => (await fetch('/waiting')).status")
        walk.expect(status == 200, f"a page could not be loaded: {status}")

    # The others take the places of those that were closed.
    for other in live[:2]:
        other.close()
    for other in stale:
        shows(other, "#live-status", "Live.")
    for other in (*live[2:], *stale):
        other.close()


def watch_thread(walk, view, page, thread):
    happen("write")
    # The thread is on record before its page is there.
    page.goto("/threads")
    page.wait_for_function(
        "(thread) => !document.getElementById('live-new')?.hidden"
        " || document.getElementById('live-rows').textContent.includes(thread)",
        arg=thread,
    )
    page.goto(f"/threads/{thread}")
    shows(page, "#live-calls", "word word")
    walk.check(page, "live thread")
    happen("wait")
    shows(page, "#live-events", "finished")
    page.wait_for_function("() => document.getElementById('live-calls').hidden")
    ids = page.eval_on_selector_all("#live-events [id]", "all => all.map((one) => one.id)")
    walk.expect(len(ids) == len(set(ids)), f"messages stand twice: {ids}")
    whole = page.locator("#live-events").inner_text()
    page.reload()
    walk.expect(page.locator("#live-events").inner_text() == whole, "a reload shows something else")


def watch_first_page(walk, page, thread):
    """The first page of a longer thread announces new messages only if there are some."""

    def answer(route):
        if "x-live-version" not in route.request.headers:
            route.continue_()
            return
        response = route.fetch()
        # A page takes this part and its other parts at once.
        text = response.text().replace('id="paused"', 'id="paused" data-loaded')
        route.fulfill(response=response, body=text.replace('data-messages="', added))

    for added, is_new in (('data-messages="', False), ('data-messages="9', True)):
        other = page.context.new_page()
        other.route(lambda url: urlsplit(url).path == f"/threads/{thread}", answer)
        other.goto(f"/threads/{thread}?limit=1")
        walk.expect(other.locator("a[rel=next]").count() > 0, "the thread has one message")
        other.locator("#paused[data-loaded]").wait_for(state="attached")
        button = other.locator("#live-new").is_visible()
        walk.expect(button == is_new, f"new messages: {is_new}, but announced: {button}")
        other.close()


def watch_other_start(walk, page, thread):
    """An open page renews all its entries after another start of the organism, because its journal may
    have been deleted, restored or redacted before. The browser does not open the page again."""
    other = page.context.new_page()
    opened = []

    def answer(route):
        if "x-live-version" in route.request.headers:
            route.continue_()
            return
        opened.append(route.request.url)
        response = route.fetch()
        # The page of an earlier start, with an entry that is no longer on record.
        text = response.text().replace('data-start="', 'data-start="9')
        text = text.replace('id="live-events">', 'id="live-events"><li id="lost"></li>')
        walk.expect('data-start="9' in text and 'id="lost"' in text, "the page is unchanged")
        route.fulfill(response=response, body=text)

    other.route(lambda url: urlsplit(url).path == f"/threads/{thread}", answer)
    other.goto(f"/threads/{thread}")
    other.locator("#lost").wait_for(state="detached")
    shows(other, "#live-status", "Live.")
    ids = "all => all.map((one) => one.id)"
    [kept, whole] = [one.eval_on_selector_all("#live-events [id]", ids) for one in (other, page)]
    walk.expect(kept == whole, f"the renewed page has other entries: {kept}, not {whole}")
    walk.expect(len(opened) == 1, f"the page was opened again: {opened}")
    other.close()


def watch_lost_call(walk, page, thread):
    """The organism ends while a model writes, and the events miss the end of the model call."""
    other = page.context.new_page()
    connections = []
    call = {"thread": thread, "agent": "lost", "call": "c", "attempt": {"epoch": 1, "n": 1}}
    text = {"live": "text", "part": "answer", "text": "never finished"}

    def answer(route):
        connections.append(route.request.url)
        events = [("state", {"running": True}), ("live", {"live": "opened", "text": True})]
        if len(connections) == 1:
            events.append(("live", {**text, **call}))
        body = "".join(f"event: {name}\ndata: {json.dumps(data)}\n\n" for name, data in events)
        route.fulfill(content_type="text/event-stream", body=f"retry: 100\n\n{body}")

    other.route(lambda url: urlsplit(url).path == f"/live/threads/{thread}", answer)
    other.goto(f"/threads/{thread}")
    shows(other, "#live-calls", "never finished")
    other.wait_for_function("() => document.getElementById('live-calls').hidden")
    walk.expect(len(connections) > 1, f"the text went without a new connection: {connections}")
    other.close()


def watch_without_script(walk, view):
    page = open_without_script(walk, view)
    walk.expect(page.locator("main button").count() <= 1, "buttons do nothing without the script")
    page.get_by_role("link", name="Reload").click()
    walk.expect(page.locator(ROWS).count() > 0, "a reload shows nothing")


def main():
    order = json.loads(sys.stdin.readline())
    view = {"name": "live", "address": order["address"]}
    with launched(order["chromium"]) as browser:
        walk = Walk(browser, "/nonexistent")
        try:
            page = open_with_token(walk, view)
            page.context.set_default_timeout(60_000)
            watch_list(walk, view, page)
            watch_failed_load(walk, page)
            watch_slow_load(page)
            watch_many_pages(walk, page)
            watch_thread(walk, view, page, order["thread"])
            watch_first_page(walk, page, order["thread"])
            watch_other_start(walk, page, order["thread"])
            watch_lost_call(walk, page, order["thread"])
            watch_without_script(walk, view)
        except Late as late:
            walk.fault(f"{page.url}: {late.message}")
    for fault in walk.faults:
        print("fault:", fault)
    sys.exit(1 if walk.faults else 0)


main()
