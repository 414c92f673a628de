// Does an order in threads of their own, one for each unit of work, and counts what was done. The same as
// fanning.py.
import assert from "node:assert/strict";

import { element, type Element, Listener, spawn, wait } from "organism-listener";

const NS = "{urn:example:talk}";
const WORK = process.env["WORK"] ?? "work";
const TIMEOUT = process.env["TIMEOUT"];

function numbered(name: string, number: number): Element {
  return element(NS + name, element(`${NS}n`, number));
}

await new Listener()
  .accepts(`${NS}order`, (request) => {
    if (request.results.length === 0) {
      const units = Array.from({ length: Number(request.text("n")) }, (_, index) => index + 1);
      const spawns = units.map((unit) => spawn(numbered(WORK, unit), { label: `unit-${unit}`, timeout: TIMEOUT }));
      return [...spawns, wait()];
    }
    const done = request.threadResults.filter((result) => result.status === "completed");
    const numbers = done.map((result) => result.payloads[0]?.elements[0]?.text);
    assert.deepEqual(done.map((result) => result.label), numbers.map((number) => `unit-${number}`));
    return numbered("done", done.length);
  })
  .serve();
