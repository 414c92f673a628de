// Answers a ping with a pong, and notes each in the file EFFECTS names: synced to disk before the answer. The
// same as solo.py.
import { fsyncSync, openSync, writeSync } from "node:fs";

import { element, Listener } from "organism-listener";

const NS = "{urn:example:talk}";
const EFFECTS = openSync(process.env["EFFECTS"] ?? "", "a");

await new Listener()
  .accepts(`${NS}ping`, (request) => {
    writeSync(EFFECTS, `solo ${request.id} ${request.attempt}\n`);
    fsyncSync(EFFECTS);
    return element(`${NS}pong`, element(`${NS}n`, request.text("n")));
  })
  .serve();
