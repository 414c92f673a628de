"use strict";

// The token stands in the address once. Nothing is sent with it but the form.
const opened = /^#token=([\w-]+)$/.exec(location.hash);
if (opened) {
  history.replaceState(null, "", location.pathname + location.search);
  const form = document.getElementById("token-form");
  if (form) {
    form.elements.token.value = opened[1];
    form.submit();
  }
}

/** The links of entries: the first of each row or message, unless it is folded away. */
function entries() {
  const isFolded = (entry) => entry.closest("details:not([open]) > :not(summary)") !== null;
  return Array.from(document.querySelectorAll("[data-entry]")).filter((entry) => !isFolded(entry));
}

function step(by) {
  const all = entries();
  const at = all.indexOf(document.activeElement);
  const next = at < 0 ? (by > 0 ? 0 : all.length - 1) : at + by;
  if (all[next]) all[next].focus();
}

const keys = {
  "/": () => document.querySelector("main input:not([type=hidden])")?.focus(),
  j: () => step(1),
  k: () => step(-1),
  n: () => document.querySelector("a[rel=next]")?.click(),
  p: () => document.getElementById("live-pause")?.click(),
  "?": () => {
    const help = document.getElementById("keys");
    if (!help) return;
    help.open = !help.open;
    help.querySelector("summary").focus();
  },
};

document.addEventListener("keydown", (event) => {
  const writes = event.target.closest("input, select, textarea");
  if (writes || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  const page = /^[1-9]$/.test(event.key) && document.querySelectorAll("header nav a")[event.key - 1];
  const action = page ? () => page.click() : keys[event.key];
  if (!action) return;
  event.preventDefault();
  action();
});

// Live pages. The server says that the content has changed; the page then loads itself and takes the
// rows that it lacks. Nothing moves beneath the pointer: new rows of a list wait for a click.

const line = document.querySelector("[data-live]");
if (line) live(line);

function live(line) {
  const policy = self.trustedTypes?.createPolicy("own-page", { createHTML: (html) => html });
  const status = document.getElementById("live-status");
  const pause = button("live-pause", "Stop updating");
  const fresh = button("live-new", "");
  fresh.hidden = true;
  line.append(" ", pause, " ", fresh);
  const calls = new Map();
  const retryMs = 2000;
  // A load that gets no connection or no response must not wait without end.
  const loadMs = 15000;
  // A page that the server does not make live may become live when another page is closed.
  const reopenMs = 5000;
  let source = null;
  let isRunning = false;
  let hasState = false;
  // Partitions whose newest records may be missing, as text.
  let unfollowed = "";
  let isPaused = false;
  let version = null;
  let isLoading = false;
  // Whether a load that has begun does not suffice.
  let isStale = false;
  let hasFailed = false;
  let retry = null;
  let reopening = null;
  // Why the server sends no events; empty while it does.
  let problem = "";

  function button(id, text) {
    const made = document.createElement("button");
    made.type = "button";
    made.id = id;
    made.textContent = text;
    return made;
  }

  function show(text) {
    if (status.textContent !== text) status.textContent = text;
  }

  function describe() {
    pause.hidden = !isRunning && !isPaused;
    if (hasState) document.getElementById("stopped").hidden = isRunning;
    if (isPaused) show("This page does not update.");
    else if (problem) show(problem);
    else if (hasFailed) show("Not live: the page could not be loaded.");
    else if (isRunning && unfollowed) show("Live, but the newest records may be missing.");
    else if (isRunning) show("Live.");
    else show("Not live.");
  }

  function open() {
    if (source || isPaused || document.hidden) return;
    source = new EventSource(line.dataset.live);
    source.addEventListener("state", (event) => {
      const state = JSON.parse(event.data);
      const partitions = String(state.unfollowed ?? []);
      // The strip that names the partitions is part of the page.
      if (hasState && partitions !== unfollowed) {
        isStale = true;
        load(version);
      }
      isRunning = state.running;
      unfollowed = partitions;
      hasState = true;
      problem = "";
      if (!isRunning) forgetAll();
      describe();
    });
    source.addEventListener("grown", (event) => load(JSON.parse(event.data).version));
    source.addEventListener("live", (event) => take(JSON.parse(event.data)));
    source.addEventListener("error", () => {
      const hasEnded = source && source.readyState === EventSource.CLOSED;
      const refused = "too many pages are live, or the view has ended";
      problem = `Not live: ${hasEnded ? refused : "connecting again"}.`;
      describe();
      if (hasEnded) reopening = setTimeout(reopen, reopenMs);
    });
  }

  function close() {
    source?.close();
    source = null;
    clearTimeout(retry);
    clearTimeout(reopening);
    forgetAll();
  }

  function reopen() {
    close();
    open();
  }

  pause.addEventListener("click", () => {
    isPaused = !isPaused;
    pause.textContent = isPaused ? "Update again" : "Stop updating";
    if (isPaused) close();
    else open();
    describe();
  });
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  addEventListener("pagehide", close);
  addEventListener("pageshow", open);

  /** Loads the page with this version of its content, one load at a time. A load that fails, for
   * example while the server makes its index, is repeated, because the next event may be far off. */
  async function load(newest) {
    version = newest;
    if (isLoading) return;
    isLoading = true;
    clearTimeout(retry);
    try {
      for (let loaded = null; loaded !== version && !isPaused; ) {
        loaded = version;
        isStale = false;
        const address = update.address();
        const headers = { "x-live-version": String(loaded) };
        const signal = AbortSignal.timeout(loadMs);
        const response = await fetch(address, { headers, redirect: "error", signal });
        if (!response.ok) throw new Error(`status ${response.status}`);
        const text = await response.text();
        const html = policy ? policy.createHTML(text) : text;
        if (isPaused) break;
        const page = new DOMParser().parseFromString(html, "text/html");
        for (const id of ["paused", "gaps", "waiting-count", "notes"]) {
          const part = page.getElementById(id);
          if (part) document.getElementById(id)?.replaceWith(part);
        }
        // A page whose earlier entries may have changed is loaded once more.
        if (update.take(page) || isStale) loaded = null;
        hasFailed = false;
      }
    } catch {
      hasFailed = true;
      const isConnected = source && source.readyState !== EventSource.CLOSED;
      if (isConnected) retry = setTimeout(() => load(version), retryMs);
    } finally {
      isLoading = false;
      describe();
    }
  }

  const has = (id) => document.getElementById(id) !== null;
  const update = has("live-rows") ? list() : has("live-waiting") ? waiting() : thread();

  /** Whether an entry is gone: not in the new list, and not beyond its end. */
  function isGone(entry, entries, isThere, isCut) {
    if (isThere(entry)) return false;
    return !isCut || entries.slice(entries.indexOf(entry)).some(isThere);
  }

  /** A list keeps its rows in their places. Rows that it lacks wait for a click. */
  function list() {
    const key = (row) => row.querySelector("a[data-entry]")?.getAttribute("href");
    const rows = (root, name) => {
      const tables = Array.from(root.querySelectorAll("#live-rows [role=region]"));
      const table = tables.find((table) => table.getAttribute("aria-label") === name);
      return Array.from(table?.querySelectorAll("tbody tr") ?? []);
    };
    let newest = null;

    fresh.addEventListener("click", () => {
      document.getElementById("live-rows").replaceWith(newest);
      fresh.hidden = true;
      document.querySelector("#live-rows a[data-entry]")?.focus();
    });

    function take(page) {
      const names = Array.from(page.querySelectorAll("#live-rows [role=region]"));
      const lacking = new Set();
      for (const name of names.map((table) => table.getAttribute("aria-label"))) {
        const known = new Map(rows(document, name).map((row) => [key(row), row]));
        for (const row of rows(page, name)) {
          const old = known.get(key(row));
          if (!old) lacking.add(key(row));
          else if (!old.isEqualNode(row)) renew(old, document.importNode(row, true));
        }
      }
      markEnds(page, "Threads that wait for a person", ".needs-you .pages", "waits no longer");
      markEnds(page, "Threads, newest first", "a[rel=next]", reasonForAbsence());
      newest = document.adoptNode(page.getElementById("live-rows"));
      fresh.hidden = lacking.size === 0;
      fresh.textContent = `${lacking.size} new`;
    }

    /** Why a thread can be absent from this list, apart from the end of the page. */
    function reasonForAbsence() {
      const query = new URLSearchParams(location.search);
      // A thread that changes moves to the first page.
      if (query.has("before")) return "no longer on this page";
      // The values with which the server turns the filter on: see `UrlQuery::flag`.
      const needsYou = ["on", "true", "1"].includes(query.get("needs_you")?.trim());
      return needsYou ? "waits no longer" : "no longer in this list";
    }

    /** Threads that have left a list stay in their places, with a mark. The threads that changed
     * last come first. So an absent row may be beyond the end of the list only if the list goes on,
     * which the link `more` shows, and if the row is not newer than the last one. */
    function markEnds(page, name, more, text) {
      const present = rows(page, name);
      const there = new Set(present.map(key));
      const changed = (row) => row?.querySelector("[data-label=Changed] time")?.dateTime ?? "";
      const end = page.querySelector(`#live-rows ${more}`) ? changed(present.at(-1)) : "";
      for (const row of rows(document, name)) {
        if (there.has(key(row)) || changed(row) <= end) continue;
        row.classList.add("gone");
        const state = row.querySelector("[data-label=Status] .status");
        if (state) state.textContent = text;
      }
    }

    function renew(old, row) {
      const hasFocus = old.contains(document.activeElement);
      old.replaceWith(row);
      if (hasFocus) row.querySelector("a[data-entry]")?.focus();
    }

    return { address: () => location.pathname + location.search, take };
  }

  /** Calls that wait keep their places. Those that wait no longer are marked, and new ones wait for a
   * click. */
  function waiting() {
    const rows = (root) => Array.from(root.querySelectorAll("#live-waiting > .call"));
    const key = (row) => row.getAttribute("aria-labelledby");
    let newest = null;

    fresh.addEventListener("click", () => {
      document.getElementById("live-waiting").replaceWith(newest);
      fresh.hidden = true;
      document.querySelector("#live-waiting a[data-entry]")?.focus();
    });

    function take(page) {
      const old = rows(document);
      const there = new Map(rows(page).map((row) => [key(row), row]));
      const isCut = page.querySelector("#live-waiting a[rel=next]") !== null;
      for (const row of old) {
        const now = there.get(key(row));
        if (now && !isSame(row, now)) renew(row, document.importNode(now, true));
        if (isGone(row, old, (row) => there.has(key(row)), isCut)) end(row);
      }
      const known = new Set(old.map(key));
      const count = Array.from(there.keys()).filter((id) => !known.has(id)).length;
      newest = document.adoptNode(page.getElementById("live-waiting"));
      fresh.hidden = count === 0;
      fresh.textContent = `${count} new`;
    }

    /** Whether two states of a call differ in its age alone. */
    function isSame(row, now) {
      const [one, other] = [row, now].map((row) => {
        const copy = document.importNode(row, true);
        copy.querySelectorAll(".ago").forEach((age) => age.remove());
        return copy;
      });
      return one.isEqualNode(other);
    }

    function renew(row, now) {
      const hasFocus = row.contains(document.activeElement);
      row.replaceWith(now);
      if (hasFocus) now.querySelector("a[data-entry]")?.focus();
    }

    function end(row) {
      if (row.classList.contains("gone")) return;
      const note = document.createElement("p");
      note.className = "note";
      note.textContent = "This call waits no longer.";
      const hadFocus = row.querySelector(".buttons")?.contains(document.activeElement);
      row.classList.add("gone");
      row.querySelector(".buttons")?.remove();
      row.querySelector("h2").after(note);
      if (hadFocus) row.querySelector("a[data-entry]")?.focus();
    }

    return { address: () => location.pathname + location.search, take };
  }

  /** A thread renews the entries from the first open one on, and gets its new entries at the end,
   * up to the size of a page. */
  function thread() {
    const most = 500;
    const events = document.getElementById("live-events");
    const messages = () => Array.from(events.querySelectorAll(":scope > [id^=seq-]"));
    const facts = (root) => root.querySelector("main dl.facts [data-messages]")?.dataset;
    const count = (root) => facts(root)?.messages;
    // Number of the thread's messages when the page had the last one, or was opened.
    let known = count(document);
    let start = facts(document)?.start;
    // Whether entries that loads leave out may have changed, so that the next load has all entries.
    let isStale = false;
    // The message from which on the present load replaces entries; null for all entries.
    let first = null;

    function isAtEnd() {
      return !document.querySelector("a[rel=next]") && messages().length < most;
    }

    /** The message at or before the first entry whose state may still change, or the last one. */
    function firstToRenew() {
      const open = events.querySelector("[data-open]");
      if (!open) return messages().at(-1);
      let entry = open.closest("#live-events > *");
      while (entry && !entry.id.startsWith("seq-")) entry = entry.previousElementSibling;
      return entry;
    }

    /** The address of the entries to renew, and of those that may follow. */
    function address() {
      const query = new URLSearchParams(location.search);
      const all = messages();
      const at = isStale ? 0 : Math.max(0, all.indexOf(firstToRenew()));
      // Before the first message there may be other entries, which belong to the same load.
      first = at > 0 ? all[at] : null;
      if (all.length > 0) {
        const isBeginning = !first && !document.querySelector("a[rel=prev]");
        if (isBeginning) query.delete("from");
        else query.set("from", all[at].id.slice("seq-".length));
        query.set("limit", (isAtEnd() ? most : all.length) - at);
      }
      return `${location.pathname}?${query}`;
    }

    /** Takes the entries of a loaded page. Returns whether all entries must be loaded first. */
    function take(page) {
      // While no organism ran, its journal may have been deleted, restored or redacted, so that the
      // entries which this load leaves out are no longer on record.
      const newestStart = facts(page)?.start;
      isStale = newestStart !== start;
      start = newestStart;
      if (isStale) return true;

      const newest = count(page);
      const hasAll = isAtEnd() && !page.querySelector("a[rel=next]");
      for (const part of ["main dl.facts", "#pauses", "#needs-you", "#operate-bar"]) {
        renew(document.querySelector(part), page.querySelector(part));
      }
      calls.forEach((call, id) => call.hasEnded && forget(id));
      takeEntries(page);
      if (hasAll) known = newest;
      fresh.hidden = known === newest;
      fresh.textContent = "New messages";
      return false;
    }

    function takeEntries(page) {
      document.querySelector("main p.empty")?.remove();
      const old = [];
      for (let node = first ?? events.firstElementChild; node; node = node.nextElementSibling) {
        old.push(node);
      }
      for (const entry of Array.from(page.getElementById("live-events")?.children ?? [])) {
        const present = old.shift();
        if (!present) {
          events.append(entry);
          continue;
        }
        keepFolds(present, entry);
        renew(present, entry);
      }
      old.forEach((entry) => entry.remove());
    }

    /** Leaves what a person has folded or unfolded in an entry as it is. */
    function keepFolds(old, newest) {
      const folds = (entry) =>
        [entry, ...entry.querySelectorAll("details")].filter((part) => part.matches("details"));
      const known = folds(old);
      folds(newest).forEach((fold, at) => {
        if (known[at]) fold.open = known[at].open;
      });
    }

    /** Replaces a part of the page if it has changed. Focus stays on the link to the same page. */
    function renew(old, newest) {
      if (!old || !newest || old.isEqualNode(newest)) return;
      const focused = old.contains(document.activeElement) && document.activeElement;
      const links = Array.from(newest.querySelectorAll("a"));
      old.replaceWith(newest);
      if (!focused) return;
      links.find((link) => link.getAttribute("href") === focused.getAttribute("href"))?.focus();
    }

    fresh.addEventListener("click", () => {
      const query = new URLSearchParams(location.search);
      query.set("from", "last");
      location.assign(`${location.pathname}?${query}`);
    });
    return { address, take };
  }

  /** Shows what a model call does, and the text that it writes. Only text becomes part of the page. */
  function take(event) {
    // A new subscription begins. The ends of earlier calls may not have come; those that go on are
    // announced again.
    if (event.live === "opened" || (event.live === "lost" && event.events === 0)) forgetAll();
    const calm = { "opened": 1, "lost": 1, "unwatched": 1 };
    if (calm[event.live]) return;
    const id = `${event.call} ${JSON.stringify(event.attempt)}`;
    const call = calls.get(id) ?? begin(id, event);
    if (event.live === "text") {
      call.write(event.part, event.text);
      return;
    }
    const [state] = typeof event.state === "string" ? [event.state] : Object.keys(event.state);
    if (state === "requested") call.clear();
    if (state === "ended") {
      call.hasEnded = true;
      if (version !== null) load(version);
    }
    call.state.textContent = state;
  }

  function forget(id) {
    calls.get(id).part.remove();
    calls.delete(id);
    const section = document.getElementById("live-calls");
    section.hidden = calls.size === 0;
  }

  function forgetAll() {
    Array.from(calls.keys()).forEach(forget);
  }

  function begin(id, event) {
    const section = document.getElementById("live-calls");
    const part = document.createElement("div");
    const head = document.createElement("p");
    const state = document.createElement("span");
    const thoughts = document.createElement("details");
    const summary = document.createElement("summary");
    const texts = { reasoning: document.createElement("pre"), answer: document.createElement("pre") };
    head.className = "head";
    head.append(`${event.agent} in ${event.thread}: `, state);
    summary.textContent = "thinking";
    thoughts.hidden = true;
    thoughts.append(summary, texts.reasoning);
    Object.values(texts).forEach((text) => (text.className = "body"));
    part.append(head, thoughts, texts.answer);
    section.append(part);
    section.hidden = false;

    const most = 40000;
    const call = {
      part,
      state,
      hasEnded: false,
      write(kind, text) {
        if (kind === "reasoning") thoughts.hidden = false;
        texts[kind].append(text);
        if (texts[kind].textContent.length > most) {
          texts[kind].textContent = "… " + texts[kind].textContent.slice(-most / 2);
        }
      },
      clear() {
        Object.values(texts).forEach((text) => (text.textContent = ""));
      },
    };
    calls.set(id, call);
    return call;
  }

  describe();
  open();
}
