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

/** The links of entries: the first of each row or message. */
function entries() {
  return Array.from(document.querySelectorAll("[data-entry]"));
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
