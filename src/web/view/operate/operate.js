"use strict";

// Keys of operators, one for each name. A key cannot leave the browser: it is not extractable.

const scheme = "organism decision 1\n";

function openStore() {
  return new Promise((resolve, reject) => {
    const opening = indexedDB.open("organism-operator", 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore("keys");
    opening.onsuccess = () => resolve(opening.result);
    opening.onerror = () => reject(opening.error);
  });
}

async function inStore(mode, act) {
  const store = await openStore();
  return new Promise((resolve, reject) => {
    const done = store.transaction("keys", mode);
    const request = act(done.objectStore("keys"));
    done.oncomplete = () => resolve(request.result);
    done.onerror = () => reject(done.error);
  });
}

const keyOf = (operator) => inStore("readonly", (keys) => keys.get(operator));

async function makeKey(operator) {
  const pair = await crypto.subtle.generateKey("Ed25519", false, ["sign"]);
  await inStore("readwrite", (keys) => keys.put(pair, operator));
  return pair;
}

function base64url(bytes) {
  const text = btoa(String.fromCharCode(...new Uint8Array(bytes)));
  return text.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

async function publicText(pair) {
  return "ed25519:" + base64url(await crypto.subtle.exportKey("raw", pair.publicKey));
}

/** A text to sign, with what the person wrote on this page. */
function signedText(form, text) {
  const statement = JSON.parse(text.slice(scheme.length));
  // The view trims the same characters, which are not those of `trim`: U+0085, and not U+FEFF.
  const trimmed = (value) => value.replace(/^\p{White_Space}+|\p{White_Space}+$/gu, "");
  const written = (name) => trimmed(form.elements[name]?.value ?? "");
  if (form.elements.reason) statement.reason = written("reason");
  statement.note = written("note");
  return scheme + JSON.stringify(statement);
}

async function prepareSigning(form) {
  const state = document.getElementById("signing");
  const pair = await keyOf(form.dataset.operator);
  const text = pair && (await publicText(pair));
  if (!pair || !state.dataset.keys.split(" ").includes(text)) {
    state.textContent = "This organism accepts only signed decisions, and " + (pair ?
      "the config does not have the key of this browser yet." :
      "this browser has no key for " + form.dataset.operator + " yet.");
    document.getElementById("signing-steps").hidden = false;
    return;
  }
  state.textContent = "The button signs with the key of this browser, " + text + ".";
  form.querySelector("button[type=submit]").disabled = false;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    form.elements.key.value = text;
    // There is a signature for each partition, and for each message.
    for (const field of form.querySelectorAll("[data-statement]")) {
      const bytes = new TextEncoder().encode(signedText(form, field.dataset.statement));
      field.value = base64url(await crypto.subtle.sign("Ed25519", pair.privateKey, bytes));
    }
    form.submit();
  });
}

async function showKey(place) {
  const { operator, keys } = place.dataset;
  const show = (id) => { document.getElementById(id).hidden = false; };
  const pair = await keyOf(operator);
  const state = document.getElementById("key-state");
  if (!pair) {
    state.textContent = "This browser has no key for " + operator + " yet.";
    show("make-key");
    document.getElementById("make-key").onclick = async () => {
      await makeKey(operator);
      location.reload();
    };
    return;
  }
  const text = await publicText(pair);
  if (keys.split(" ").includes(text)) {
    state.textContent = "The config has the key of this browser: decisions can be signed here.";
    return;
  }
  state.textContent = "This browser has a key, and the config does not have it yet.";
  document.getElementById("key-line").textContent = place.dataset.command.replace(" KEY ", ` ${text} `);
  show("key-line");
  show("key-hint");
}

function failed(id) {
  return (error) => {
    document.getElementById(id).textContent =
      "This browser cannot sign (" + error.message + "): decide at the terminal, with --sign FILE.";
  };
}

/** Shows the warning of the frame, unless the page itself is about the key. */
async function warnOfKey(warning) {
  const { operator, keys } = warning.dataset;
  const pair = await keyOf(operator);
  if (!pair || !keys.split(" ").includes(await publicText(pair))) warning.hidden = false;
}

const form = document.querySelector("[data-statement]")?.form;
if (form) prepareSigning(form).catch(failed("signing"));
const place = document.getElementById("browser-key");
if (place) showKey(place).catch(failed("key-state"));
const warning = document.getElementById("key-warning");
if (warning && !form && !place) warnOfKey(warning).catch(() => { warning.hidden = false; });
