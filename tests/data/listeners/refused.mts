// Serves once with each of the arguments: variables of the environment, as an object in JSON. Each is refused.
// The last ends the program, as it does in a listener that serves only once. The same as refused.py.
import { Listener } from "organism-listener";

class Ended extends Error {}

const [last = "{}", ...others] = process.argv.slice(2).reverse();
const { exit } = process;
const served = new Listener().accepts("{urn:test}do", () => undefined);
process.exit = (code) => {
  throw new Ended(String(code));
};
for (const variables of others.reverse()) {
  const before = { ...process.env };
  Object.assign(process.env, JSON.parse(variables));
  const end = await served.serve().catch((error: unknown) => error);
  if (!(end instanceof Ended && end.message === "1")) {
    throw new Error(`${end} with ${variables}`);
  }
  process.env = before;
}
process.exit = exit;
Object.assign(process.env, JSON.parse(last));
await served.serve();
