"""Acts in web views in a real Chromium, as an operator does.

Reads a JSON object from the first line of standard input: `chromium`, `pictures` (or null), `view`,
`retries` and `signed` (each with `name` and `address`), `message`, a client's request, and `is_short`
(whether the person with a pointer leaves out what the signed view and the other ways show). When the
browser has made its key, writes `key ` and the command that enrols it, and goes on after the next line
of standard input.
Writes a line for each fault, and ends with exit code 1 if there is one.
"""

import json
import sys

from playwright.sync_api import TimeoutError as Late
from walk import Walk, launched, open_with_token, open_without_script

ROUNDS = 40
# Pages with the elements of another page that gets a picture, which a short walk leaves out.
ALIKE = ("retry-done", "retry-all-signed", "threads-paused")


class Person:
    """Uses a page with a pointer, or with the keyboard alone."""

    def __init__(self, walk, page, message, by_keyboard):
        self.walk = walk
        self.page = page
        self.message = message
        self.by_keyboard = by_keyboard

    def open(self, path):
        self.walk.open(self.page, path)

    def focus(self, target):
        """Reaches an element with the tabulator key."""
        target = target.element_handle()
        for _ in range(200):
            if target.evaluate("element => element === document.activeElement"):
                return
            self.page.keyboard.press("Tab")
        self.walk.fault(f"the keyboard does not reach {target} on {self.page.url}")

    def use(self, role, name):
        target = self.page.locator("main").get_by_role(role, name=name).first
        if not self.by_keyboard:
            target.click()
        else:
            self.focus(target)
            with self.page.expect_navigation():
                self.page.keyboard.press("Enter")
        self.walk.opened += 1

    def write(self, label, text):
        target = self.page.get_by_label(label).first
        if self.by_keyboard:
            self.focus(target)
            self.page.keyboard.press("Control+a")
            self.page.keyboard.type(text)
        else:
            target.fill(text)

    def choose(self, label, value):
        target = self.page.get_by_label(label).first
        if self.by_keyboard:
            self.focus(target)
            self.page.keyboard.type(value)
        else:
            target.select_option(value)

    def done(self, what):
        text = self.page.locator("main").inner_text()
        self.walk.expect("Done." in text, f"{what}: {self.page.url}: {text[:400]}")

    def picture(self, name, taken):
        is_wanted = not (self.walk.is_short and name in ALIKE)
        if name not in taken and is_wanted:
            taken.add(name)
            self.walk.picture(self.page, f"operate-{name}")


def approve(person, taken):
    person.open("/waiting")
    person.picture("waiting", taken)
    person.use("link", "Approve")
    person.picture("approve", taken)
    person.write("Note for the record", "seen in a browser")
    person.use("button", "Approve exactly this")
    person.picture("done", taken)
    person.done("approve")


def answer_and_fork(person, taken):
    person.open("/waiting")
    person.use("link", "Answer")
    person.picture("answer", taken)
    person.choose("verdict (required)", "leave")
    person.write("remark", "only then")
    person.use("button", "Check the answer")
    person.picture("answer-check", taken)
    person.use("button", "Send this answer")
    person.done("answer")

    person.open(f"/messages/{person.message}")
    person.use("link", "Fork here")
    person.picture("fork", taken)
    person.write("The request with which the fork begins",
                 '<ping xmlns="urn:example:talk"><n>7</n></ping>')
    person.use("button", "Check the fork")
    person.picture("fork-check", taken)
    person.use("button", "Fork it")
    person.done("fork")
    if not person.walk.is_short or "thread" not in taken:
        person.page.locator("main a[href^='/threads/']").first.click()
        person.picture("thread", taken)


PAUSE = ("Pause all", "Pause")
PAUSE_AND_CANCEL = ("Pause and cancel all", "Pause and cancel")


def pause_and_resume(person, taken, forms):
    for link, button in forms:
        person.open("/operate")
        person.picture("operate", taken)
        person.use("link", link)
        person.picture("pause", taken)
        person.use("button", button)
        person.done(button)
        for _ in range(ROUNDS):
            person.open("/operate")
            if person.page.locator(".pauses li").count():
                break
        person.picture("paused", taken)
        if not person.walk.is_short:
            person.open("/threads")
            person.picture("threads-paused", taken)
            person.open("/operate")
        person.page.locator(".pauses a").first.focus()
        person.use("link", "Resume")
        person.use("button", "Resume")
        person.done("resume")


def retry(person, taken, is_last):
    """Retries the first message of the list, then the next, which needs a second confirmation."""

    def first():
        person.open("/refused")
        rows = "[aria-label='Messages that can be retried'] tbody th"
        return person.page.locator(rows).first.inner_text()

    before = first()
    person.picture("refused", taken)
    person.use("link", "Retry")
    person.picture("retry", taken)
    person.write("Note for the record", "once more")
    person.use("button", "Retry it")
    person.picture("retry-done", taken)
    person.done("retry")
    for _ in range(ROUNDS):
        second = first()
        if second != before:
            break

    person.use("link", "Retry")
    person.use("button", "Retry it")
    text = person.page.locator("main").inner_text()
    person.walk.expect("Nothing was sent" in text, f"a second time unasked: {text[:400]}")
    person.picture("retry-again", taken)
    person.use("button", "Confirm the retry")
    person.done("a second time")
    for _ in range(ROUNDS):
        if first() != second:
            break
    if is_last:
        person.use("link", "Retry these 2")
        person.use("button", "Retry all of these")
        person.done("all")


def act_with_key(walk, view, taken):
    """Makes a key, waits until the config has it, and signs."""
    page = open_with_token(walk, view)
    person = Person(walk, page, None, False)
    person.open("/threads")
    warning = page.locator("#key-warning")
    warning.wait_for()
    person.picture("key-warning", taken)
    warning.get_by_role("link").click()
    person.use("button", "Make a key")
    page.locator("#key-line:not([hidden])").wait_for()
    person.picture("key", taken)
    print("key " + page.locator("#key-line").inner_text().strip(), flush=True)
    sys.stdin.readline()

    person.open("/operate/key")
    page.get_by_text("decisions can be signed here").wait_for()
    exported = page.evaluate("""async () => {
        const keys = await new Promise((resolve) => {
            const opening = indexedDB.open("organism-operator", 1);
            opening.onsuccess = () => resolve(opening.result.transaction("keys").objectStore("keys"));
        });
        const pair = await new Promise((resolve) => {
            const getting = keys.get("ana");
            getting.onsuccess = () => resolve(getting.result);
        });
        return crypto.subtle.exportKey("pkcs8", pair.privateKey).then(() => "exported", () => "kept");
    }""")
    walk.expect(exported == "kept", f"the private key can be exported: {exported}")
    walk.expect(page.locator("#key-warning").is_hidden(), "a key of the config is warned of")

    person.open("/waiting")
    person.use("link", "Approve")
    page.get_by_text("signs with the key").wait_for()
    person.picture("approve-signed", taken)
    # The view keeps the first character and trims the last; `trim` of the browser does the opposite.
    person.write("Note for the record", "\ufeffsigned: \"ünï\" \\ <&>\u0085")
    person.use("button", "Approve exactly this")
    page.get_by_text("Done.").wait_for()
    # Each of several messages has a signature of its own.
    person.open("/refused")
    person.use("link", "Retry these 2")
    page.get_by_text("signs with the key").wait_for()
    person.picture("retry-all-signed", taken)
    person.use("button", "Retry all of these")
    page.get_by_text("Sent again: 2.").wait_for()
    person.picture("retry-all-done", taken)
    person.open("/operate")
    person.use("link", "Pause all")
    page.get_by_text("signs with the key").wait_for()
    person.use("button", "Pause")
    page.get_by_text("Done.").wait_for()
    page.context.close()

    # Another browser has no key, and one without a script can have none.
    for page in (open_with_token(walk, view), open_without_script(walk, view)):
        person = Person(walk, page, None, False)
        person.open("/operate/pause?verb=resume&target=all")
        button = page.get_by_role("button", name="Resume")
        walk.expect(button.is_disabled(), f"without a key, {page.url} takes a decision")
        person.picture("without-key", taken)
        page.context.close()


def main():
    order = json.loads(sys.stdin.readline())
    is_short = order["is_short"]
    taken = set()

    def act(person, name):
        """Uses each form that a person needs. The forms of a pause differ in their text alone."""
        is_pointer = name == "pointer"
        if not is_short or not is_pointer:
            approve(person, taken)
        answer_and_fork(person, taken)
        if not is_short:
            forms = (PAUSE, PAUSE_AND_CANCEL)
        else:
            forms = (PAUSE_AND_CANCEL,) if is_pointer else (PAUSE,)
        pause_and_resume(person, taken, forms)

    with launched(order["chromium"]) as browser:
        walk = Walk(browser, order["pictures"], is_short=is_short)
        ways = [
            ("pointer", open_with_token, False),
            ("keyboard", open_with_token, True),
            ("no script", open_without_script, False),
        ]
        for name, open_view, by_keyboard in ways:
            is_last = name == ways[-1][0]
            uses = [(order["view"], lambda person: act(person, name))]
            # With a pointer and the script, the signed view approves, pauses and retries.
            if not is_short or name != "pointer":
                uses.append((order["retries"], lambda person: retry(person, taken, is_last)))
            for view, use in uses:
                page = open_view(walk, view)
                try:
                    use(Person(walk, page, order["message"], by_keyboard))
                except Late as late:
                    walk.fault(f"{name}: {page.url}: {late.message.splitlines()[:4]}")
                page.context.close()
        try:
            act_with_key(walk, order["signed"], taken)
        except Late as late:
            walk.fault(f"key: {late.message.splitlines()[:4]}")
    for fault in walk.faults:
        print(fault)
    print(f"{walk.opened} pages opened, {walk.checked} checked, {walk.taken} pictures, "
          f"{len(walk.faults)} faults")
    sys.exit(1 if walk.faults else 0)


if __name__ == "__main__":
    main()
