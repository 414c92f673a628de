"""Opens the pages of web views in a real Chromium, as a person with a browser does.

Reads a JSON object from standard input: `chromium` (the program), `pictures` (a directory for
screenshots, or null for none), `is_short` (whether one page of each kind is opened, and axe looks at
the colors of one element of each kind), `all_widths` (whether each page is pictured in all widths and
schemes, in place of those that are checked, and checked in each view) and `views`, a list with
`name`, `address` (with its token) and `hostile` (whether it has hostile texts) of each view. Writes a
line for each fault, and ends with exit code 1 if there is one. The last line counts what was seen.
"""

import contextlib
import faulthandler
import json
import pathlib
import re
import sys
import time
from urllib.parse import urlsplit

import axe_playwright_python
from playwright.sync_api import TimeoutError as Late
from playwright.sync_api import expect, sync_playwright

AXE = (pathlib.Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
# Targets of less than 24 px without room around them are a serious finding as well.
# No rule that is enabled needs the style sheets and media that axe can load beforehand.
AXE_RUN = """(only) => axe.run({
    resultTypes: ["violations"], rules: { "target-size": { enabled: true } }, preload: false,
    ...(only && { runOnly: { type: "rule", values: only } }),
}).then((found) => found.violations
    .filter((rule) => rule.impact === "serious" || rule.impact === "critical")
    .map((rule) => rule.id + ": " + rule.nodes.map((node) => node.html.slice(0, 120)).join(" | ")))"""
# Restricts the rule about contrast to the elements that MARK_KINDS marks.
ONE_OF_A_KIND = """
axe.configure({ rules: [{ id: "color-contrast", selector: "[data-axe-kind]" }] });
"""
# Marks one visible element with text of each kind: the color of an element depends on what the
# selectors of the style sheet see of it and of the elements around it. `known` lists the kinds that
# need no mark. Returns the kinds that got one.
MARK_KINDS = """(known) => {
    const rules = Array.from(document.styleSheets, (sheet) => Array.from(sheet.cssRules)).flat();
    const css = rules.map((rule) => rule.cssText).join("\\n");
    const selected = Array.from(css.matchAll(/\\[([a-z-]+)/g), (found) => found[1]);
    const names = Array.from(new Set(["class", "disabled", ...selected]));
    const kindOf = (element) => {
        const id = css.includes("#" + element.id) ? element.id : "";
        return [element.tagName, id, ...names.map((name) => element.getAttribute(name))].join(",");
    };
    const kinds = new Map([[null, 0]]);
    const kindWithin = (element) => {
        if (!kinds.has(element)) {
            const text = Array.from(kindWithin(element.parentElement) + " " + kindOf(element));
            kinds.set(element, text.reduce((hash, c) => (hash * 31 + c.codePointAt(0)) | 0, 7));
        }
        return kinds.get(element);
    };
    const hasText = (element) => element.matches("input, select, textarea")
        || Array.from(element.childNodes).some((node) => node.nodeType === 3 && node.data.trim());
    const seen = new Set(known);
    const marked = [];
    for (const element of document.body.querySelectorAll("*")) {
        element.removeAttribute("data-axe-kind");
        if (hasText(element) && element.checkVisibility() && !seen.has(kindWithin(element))) {
            element.setAttribute("data-axe-kind", "");
            seen.add(kindWithin(element));
            marked.push(kindWithin(element));
        }
    }
    return marked;
}"""
# The heights of the buttons of actions that are too low for a finger.
LOW_BUTTONS = """() => Array.from(document.querySelectorAll(".buttons .button, .buttons button, .operate-bar .button"))
    .filter((button) => button.checkVisibility() && button.getBoundingClientRect().height < 44)
    .map((button) => button.textContent)"""
# The links to the current page or view that look like those to other pages.
UNMARKED = """() => Array.from(document.querySelectorAll("a[aria-current]"))
    .filter((link) => getComputedStyle(link).textDecorationLine !== "underline")
    .map((link) => link.textContent)"""
# Longer than any walk takes.
SECONDS_MAX = 600
WIDTHS = {"phone": 390, "laptop": 1280, "wide": 1920}
# The color schemes and widths in which axe looks at a page, each with the rules that it applies. What the
# other rules look at does not depend on colors and widths.
CHECKED = {
    ("light", "phone"): ["color-contrast", "target-size", "scrollable-region-focusable"],
    ("dark", "laptop"): None,
}
# The page that asks for the token has this status, and Chromium writes it to the console.
ASKED_FOR_TOKEN = "status of 401 (Unauthorized)"
ID = re.compile(r"/(threads|messages|records)/[^/?#]+")
# Beginnings of the kinds whose pages show a part of a thread.
ABOUT_THREADS = ("/threads/ID", "/messages/ID", "/records/ID", "/compare")
# Kinds with parameters that get a picture as well.
PICTURED = ("/threads/ID?view=sequence", "/threads/ID?view=timeline", "/compare?a", "/compare?a&b")


@contextlib.contextmanager
def launched(program):
    """Launches the Chromium `program`, and closes it at the end.

    After SECONDS_MAX, a browser has stopped answering. Then this program ends, and writes to standard
    error where it was.
    """
    faulthandler.dump_traceback_later(SECONDS_MAX, exit=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program)
        yield browser
        browser.close()
    faulthandler.cancel_dump_traceback_later()


class Walk:
    """One browser, and what was seen with it."""

    def __init__(self, browser, pictures, all_widths=False, is_short=True):
        self.browser = browser
        self.is_short = is_short
        # For each color scheme, the kinds of elements whose contrast is known.
        self.kinds = {"light": set(), "dark": set()}
        self.pictures = pathlib.Path(pictures) if pictures else None
        self.all_widths = all_widths
        self.faults = []
        self.opened = 0
        self.checked = 0
        self.taken = 0

    def fault(self, text):
        self.faults.append(text)

    def expect(self, is_so, text):
        if not is_so:
            self.fault(text)

    def page_of(self, view, **options):
        """A page in a session of its own that notes everything unusual, on the page for the token."""
        origin = urlsplit(view["address"])
        context = self.browser.new_context(base_url=f"http://{origin.netloc}", **options)
        page = context.new_page()
        page.set_default_timeout(60_000)
        where = f"{view['name']}: "
        # Until the token is known, one page has the status 401, and is left while it loads.
        page.has_token = False

        def note_console(message):
            if page.has_token or ASKED_FOR_TOKEN not in message.text:
                self.fault(f"{where}{page.url}: the console shows `{message.text}`")

        def note_failure(request):
            # A page that is left while its icon loads aborts that request.
            if request.failure != "net::ERR_ABORTED":
                self.fault(f"{where}{request.url}: {request.failure}")

        def note_request(request):
            to = urlsplit(request.url)
            if to.scheme not in ("http", "data") or to.netloc not in ("", origin.netloc):
                self.fault(f"{where}{page.url}: a request to {request.url}")

        def note_response(response):
            if response.status >= 400 and response.status != 401:
                self.fault(f"{where}{response.url}: status {response.status}")

        page.on("console", note_console)
        page.on("pageerror", lambda error: self.fault(f"{where}{page.url}: {error}"))
        page.on("request", note_request)
        page.on("response", note_response)
        page.on("requestfailed", note_failure)
        return page

    def open(self, page, path):
        page.goto(path)
        self.opened += 1

    def check(self, page, where, rules=None, scheme="light", is_alike=False):
        """Asserts that axe has no serious finding, and that the page is no wider than its window.

        `rules` names the rules of axe; None stands for all. In a short walk, axe looks at the colors
        of kinds of elements that no page had before in this color scheme. If there are none, it does not
        look at a page that is alike to others."""
        new_kinds = page.evaluate(MARK_KINDS, list(self.kinds[scheme])) if self.is_short else []
        self.kinds[scheme].update(new_kinds)
        if new_kinds or not (self.is_short and is_alike):
            if not page.evaluate("() => 'axe' in window"):
                page.evaluate(AXE + ONE_OF_A_KIND if self.is_short else AXE)
            for finding in page.evaluate(AXE_RUN, rules):
                self.fault(f"{where}: axe: {finding}")
            self.checked += 1
        if page.viewport_size["width"] <= WIDTHS["phone"]:
            low = page.evaluate(LOW_BUTTONS)
            self.expect(not low, f"{where}: buttons of less than 44 px: {low}")
        wide = page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        self.expect(wide <= 0, f"{where}: the page is {wide} px wider than its window")

    def picture(self, page, name):
        """Checks on a phone and on a laptop, one light and one dark, with a screenshot of each."""
        every = [(scheme, width) for scheme in ("light", "dark") for width in WIDTHS]
        for scheme, width in every if self.all_widths else CHECKED:
            # The first is the scheme of a new page, and is set again at the end.
            if scheme != "light" or self.all_widths:
                page.emulate_media(color_scheme=scheme)
            page.set_viewport_size({"width": WIDTHS[width], "height": 900})
            if self.pictures:
                page.screenshot(path=self.pictures / f"{name}-{width}-{scheme}.png")
                self.taken += 1
            if (scheme, width) in CHECKED:
                self.check(page, f"{name}, {width}, {scheme}", CHECKED[scheme, width], scheme)
        page.emulate_media(color_scheme="light", forced_colors="active")
        unmarked = page.evaluate(UNMARKED)
        self.expect(not unmarked, f"{name}: forced colors do not mark the current {unmarked}")
        page.emulate_media(color_scheme="light", forced_colors="none")
        if page.viewport_size["width"] != WIDTHS["laptop"]:
            page.set_viewport_size({"width": WIDTHS["laptop"], "height": 900})


def kind_of(path):
    """The path without ids and values, such as `/threads/ID` or `/search?words`. Views differ."""
    parts = urlsplit(path)
    pairs = [pair for pair in parts.query.split("&") if pair]
    names = sorted({pair if pair.startswith("view=") else pair.split("=")[0] for pair in pairs})
    return ID.sub(r"/\1/ID", parts.path) + ("?" + "&".join(names) if names else "")


def open_with_token(walk, view, **options):
    """Opens the address of the terminal. The script sends the token and removes it from the URL."""
    page = walk.page_of(view, **options)
    walk.open(page, view["address"])
    page.wait_for_url("**/threads")
    page.has_token = True
    walk.expect("token" not in page.url, f"{view['name']}: the token stays in {page.url}")
    return page


def open_without_script(walk, view):
    """Opens the view as a person who pastes the token into the page for it."""
    page = walk.page_of(view, java_script_enabled=False)
    address, token = view["address"].split("#token=")
    walk.open(page, address)
    field = page.get_by_label("Token of this view")
    # The page moves the focus there when it is drawn first, and complains if something else did so.
    expect(field).to_be_focused(timeout=60_000)
    field.fill(token)
    page.get_by_role("button", name="Open").click()
    page.wait_for_url("**/threads")
    page.has_token = True
    return page


def walk_all_pages(walk, view, pictured, checked):
    """Opens the pages that links lead to, some of each kind. Axe looks at one page of each kind, and again
    at those of the view with hostile texts. A short walk opens pages of a kind that other views have had
    only if they are about a thread of this view, or have hostile texts and no parameters."""
    page = open_with_token(walk, view)
    known = {"/threads"}
    waiting = ["/threads"]
    seen = {}
    while waiting:
        path = waiting.pop(0)
        kind = kind_of(path)
        seen[kind] = seen.get(kind, 0) + 1
        if seen[kind] > (1 if walk.is_short else 2):
            continue
        is_plain = "?" not in kind or kind in PICTURED
        is_own = path == "/threads" or kind.startswith(ABOUT_THREADS) or view["hostile"]
        if walk.is_short and kind in checked and not (is_plain and is_own):
            continue
        walk.open(page, path)
        links = page.eval_on_selector_all(
            "a[href]:not([download])", "links => links.map(link => link.getAttribute('href'))"
        )
        for link in links:
            walk.expect(link.startswith(("/", "#")), f"{path}: a link to {link}")
            link = link.split("#")[0]
            if link and link not in known:
                known.add(link)
                waiting.append(link)
        if kind not in pictured and is_plain:
            pictured.add(kind)
            name = re.sub(r"[/?&=]", "-", view["name"] + kind)
            walk.picture(page, name)
            checked.add(kind)
        elif seen[kind] == 1 and (kind not in checked or view["hostile"] or walk.all_widths):
            walk.check(page, f"{view['name']} {path}", is_alike=not is_plain)
            checked.add(kind)
    page.context.close()
    return seen


def follow_to_prompt(walk, page, view, follow):
    """From the threads to a message that a model wrote, its cause, and the prompt."""
    name = view["name"]
    follow("main table a[data-entry]")
    walk.expect("/threads/" in page.url, f"{name}: no thread behind the list, but {page.url}")
    for _ in range(2):
        if page.locator(".event[data-kind=note] a[data-entry]").count():
            break
        follow(".event[data-kind=subthread] a[data-entry]")
    written = page.locator(".event[data-kind=reply] a[data-entry]").last
    follow(written)
    walk.expect("/messages/" in page.url, f"{name}: no message behind the thread, but {page.url}")
    message = page.url
    follow("#causes a[data-entry]")
    walk.expect(page.url != message, f"{name}: no cause of {message}")
    walk.expect("/messages/" in page.url, f"{name}: the cause of {message} is {page.url}")
    page.go_back()
    follow("a#prompt")
    text = page.locator("main").inner_text()
    walk.expect("/prompt" in page.url, f"{name}: no prompt behind {message}, but {page.url}")
    walk.expect("sha256" in text and "System" in text, f"{name}: no prompt on {page.url}")


def walk_with_pointer(walk, view, has_script=True):
    """The same walk with a pointer; filters, search and what waits are used as well."""
    name = view["name"]
    page = open_with_token(walk, view) if has_script else open_without_script(walk, view)

    def follow(target):
        target = page.locator(target).first if isinstance(target, str) else target
        fold = page.locator("details:not([open])").filter(has=target)
        if fold.count():
            fold.first.locator("summary").first.click(position={"x": 2, "y": 8})
        target.click()
        walk.opened += 1

    # In a short walk, the keyboard shows that the script leaves this path as it is.
    if not (walk.is_short and has_script):
        follow_to_prompt(walk, page, view, follow)

    page.get_by_role("link", name="Threads").first.click()
    thread = page.locator("main table a[data-entry]").first.inner_text()
    page.get_by_label("Status").select_option("completed")
    page.get_by_text("More filters").click()
    page.get_by_label("Changed since").fill("1d")
    page.get_by_role("button", name="Filter").click()
    walk.expect("status=completed" in page.url, f"{name}: the filter is not in {page.url}")
    text = page.locator("main").inner_text()
    walk.expect(thread in text, f"{name}: the filter loses {thread}")

    page.get_by_role("link", name="Search").click()
    page.get_by_label("Words").fill("workflow")
    page.get_by_role("button", name="Search").click()
    walk.expect("words=workflow" in page.url, f"{name}: the search is not in {page.url}")
    found = page.locator(".events.found a[data-entry]")
    walk.expect(found.count() > 0, f"{name}: the search finds nothing")

    page.get_by_role("link", name="Waiting").click()
    text = page.locator("main").inner_text()
    walk.expect("No call waits" in text, f"{name}: something waits: {text}")
    walk.opened += 4
    page.context.close()


def walk_with_keyboard(walk, view):
    """The same walk, and no pointer."""
    name = view["name"]
    page = open_with_token(walk, view)
    keys = page.keyboard

    def focused():
        return page.evaluate(
            "() => { const e = document.activeElement;"
            " return [e.tagName, e.id, e.getAttribute('href') || '', e.textContent].join(' '); }"
        )

    def press_until(key, is_there, what):
        """Presses a key until the focus is at the wanted place."""
        for _ in range(200):
            if is_there(focused()):
                return
            keys.press(key)
        walk.fault(f"{name}: {key} leads to no {what} on {page.url}, but to {focused()}")

    def enter(path):
        with page.expect_navigation():
            keys.press("Enter")
        walk.opened += 1
        walk.expect(path in page.url, f"{name}: Enter leads to {page.url}, not to {path}")

    keys.press("Tab")
    walk.expect("#content" in focused(), f"{name}: the first Tab leads to {focused()}")
    keys.press("Enter")
    page.wait_for_function("document.activeElement.id === 'content'")
    keys.press("?")
    walk.expect(page.locator("#keys[open] dl").is_visible(), f"{name}: `?` shows no keys")
    walk.expect("SUMMARY" in focused(), f"{name}: after `?`, the focus is at {focused()}")

    keys.press("j")
    enter("/threads/")
    if not page.locator(".event[data-kind=note]").count():
        press_until("j", lambda at: "/threads/" in at, "subthread")
        enter("/threads/")
    reply = page.locator(".event[data-kind=reply] a[data-entry]").last.get_attribute("href")
    press_until("j", lambda at: reply in at, "reply")
    enter("/messages/")
    press_until("j", lambda at: "/messages/" in at and "/prompt" not in at, "cause")
    with page.expect_navigation():
        keys.press("Enter")
    walk.expect(reply not in page.url, f"{name}: no cause behind {reply}")
    page.go_back()
    press_until("Tab", lambda at: "/prompt" in at, "prompt")
    enter("/prompt")

    for section, words in (("Threads", "workflow"), ("Search", "workflow")):
        press_until("Shift+Tab" if section == "Threads" else "Tab",
                    lambda at: at.startswith("A ") and at.endswith(" " + section), section)
        with page.expect_navigation():
            keys.press("Enter")
        keys.press("/")
        walk.expect("INPUT words" in focused(), f"{name}: `/` leads to {focused()}")
        keys.type(words)
        with page.expect_navigation():
            keys.press("Enter")
        walk.expect(f"words={words}" in page.url, f"{name}: the words are not in {page.url}")
        walk.opened += 2
        page.locator("main").focus()
    keys.press("j")
    walk.expect("/messages/" in focused(), f"{name}: `j` leads to {focused()} in the search")
    page.context.close()


def walk_view(walk, view, pictured, checked):
    name = view["name"]
    ways = [("pages", lambda: walk_all_pages(walk, view, pictured, checked))]
    if view.get("walks"):
        ways += [
            ("pointer", lambda: walk_with_pointer(walk, view)),
            ("no script", lambda: walk_with_pointer(walk, view, has_script=False)),
            ("keyboard", lambda: walk_with_keyboard(walk, view)),
        ]
    for way, take in ways:
        begun = time.monotonic()
        try:
            take()
        except Late as late:
            walk.fault(f"{name}, {way}: {late.message.splitlines()[0]} {late.message.splitlines()[1:4]}")
        print(f"{name}, {way}: {time.monotonic() - begun:.1f} s", file=sys.stderr)


def main():
    order = json.load(sys.stdin)
    with launched(order["chromium"]) as browser:
        walk = Walk(
            browser, order["pictures"], order["all_widths"], order["is_short"]
        )
        pictured, checked = set(), set()
        for view in order["views"]:
            walk_view(walk, view, pictured, checked)
        version = browser.version
    for fault in walk.faults:
        print(fault)
    kinds = ", ".join(sorted(pictured))
    print(
        f"Chromium {version}: {walk.opened} pages opened, {walk.checked} checked, "
        f"{walk.taken} pictures, {len(walk.faults)} faults; pictured: {kinds}"
    )
    sys.exit(1 if walk.faults else 0)


if __name__ == "__main__":
    main()
