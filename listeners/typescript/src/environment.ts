/** Where a listener on NATS belongs, as its environment says (docs/PROTOCOL.md, section 12). */

import { readFileSync } from "node:fs";

import { type Authenticator, type ConnectionOptions, credsAuthenticator, nkeyAuthenticator } from "@nats-io/transport-node";

import { reasonOf } from "./program.js";

/** For how long a server may take to accept a connection. */
const CONNECT_MILLISECONDS = 5000;
const LEASE_SECONDS_MAX = 30 * 24 * 3600;

const ADDRESS = /^((nats|tls):\/\/)?(\[[0-9a-f:.]+\]|[^\s/:[\]]+)(:[0-9]{1,5})?(\/\S*)?$/i;

/** Something that waiting does not mend. The program ends with this text. */
export class FatalError extends Error {}

/** A listener's name, its servers, and what it is to do there. */
export interface BusEnvironment {
  readonly organism: string;
  readonly listener: string;
  readonly leaseSeconds: number;
  /** Handlers at once. */
  readonly workers: number;
}

export function busEnvironment(): BusEnvironment {
  const lease = variable("ORGANISM_BUS_LEASE") ?? "5";
  const leaseSeconds = Number(lease);
  if (!(leaseSeconds >= 1 && leaseSeconds <= LEASE_SECONDS_MAX)) {
    throw new FatalError(`ORGANISM_BUS_LEASE is \`${lease}\`, not a number of seconds from 1`);
  }
  const workers = variable("ORGANISM_BUS_WORKERS") ?? "1";
  if (!/^[1-9]\d{0,3}$/.test(workers)) {
    throw new FatalError(`ORGANISM_BUS_WORKERS is \`${workers}\`, not a number of handlers from 1 to 9999`);
  }

  const [organism, listener] = [nameIn("ORGANISM_NAME"), nameIn("ORGANISM_LISTENER")];
  const [credentials, nkey] = ["ORGANISM_BUS_CREDENTIALS", "ORGANISM_BUS_NKEY"];
  if (variable(credentials) && variable(nkey)) {
    throw new FatalError(`set ${credentials} or ${nkey}, not both`);
  }
  if (needed("ORGANISM_BUS_URL").includes("@")) {
    throw new FatalError(`ORGANISM_BUS_URL holds credentials; set ${credentials} or ${nkey}`);
  }
  return { organism, listener, leaseSeconds, workers: Number(workers) };
}

/** The options of the connection. Throws where a file cannot be used. */
export function connectionOptions(place: BusEnvironment): ConnectionOptions {
  const authority = trustedCertificates();
  const authenticator = authenticatorOf();
  return {
    servers: addresses(needed("ORGANISM_BUS_URL")),
    name: `listener ${place.listener} of ${place.organism}`,
    inboxPrefix: `_INBOX_${place.listener}`,
    maxReconnectAttempts: -1,
    reconnectTimeWait: 200,
    reconnectJitter: 50,
    timeout: CONNECT_MILLISECONDS,
    ignoreAuthErrorAbort: true,
    ...(authority ? { tls: { ca: authority } } : {}),
    ...(authenticator ? { authenticator } : {}),
  };
}

/** What this listener shows to the servers, for error messages. */
export function shownCredentials(): string {
  const keys = ["ORGANISM_BUS_CREDENTIALS", "ORGANISM_BUS_NKEY"].filter((key) => variable(key));
  return keys.map((key) => `${key}=${variable(key)}`).join(", ") || "there are no credentials";
}

function authenticatorOf(): Authenticator | undefined {
  const [credentials, seed] = [content("ORGANISM_BUS_CREDENTIALS"), content("ORGANISM_BUS_NKEY")];
  const authenticator = credentials
    ? credsAuthenticator(credentials)
    : seed && nkeyAuthenticator(Buffer.from(seed.toString().trim()));
  try {
    // The client shows what is wrong with a file only when a server asks for it.
    authenticator?.("nonce");
  } catch (error) {
    throw new FatalError(`${reasonOf(error)}: with ${shownCredentials()}`);
  }
  return authenticator;
}

/** The certificates in the file that ORGANISM_BUS_CA names. Node.js takes a file without any for an empty list. */
function trustedCertificates(): string | undefined {
  const key = "ORGANISM_BUS_CA";
  const text = content(key)?.toString();
  if (text !== undefined && !text.includes("-----BEGIN CERTIFICATE-----")) {
    throw new FatalError(
      `${key} is \`${variable(key)}\`, which contains no certificate: name a PEM file with the certificate of the ` +
        "authority that signed the certificates of the servers",
    );
  }
  return text;
}

/** The addresses of the servers. The client would wait for ever for a server whose address is none. */
function addresses(text: string): string[] {
  const all = text.split(",").map((address) => address.trim());
  const wrong = all.find((address) => !ADDRESS.test(address));
  if (wrong !== undefined) {
    throw new FatalError(
      `ORGANISM_BUS_URL has \`${wrong}\`, not the address of a NATS server: write it like nats://127.0.0.1:4222 or ` +
        "tls://host:4222",
    );
  }
  return all;
}

/** The content of the file that a variable names. */
function content(name: string): Buffer | undefined {
  const path = variable(name);
  try {
    return path === undefined ? undefined : readFileSync(path);
  } catch (error) {
    throw new FatalError(`${name} is \`${path}\`: ${reasonOf(error)}`);
  }
}

function variable(name: string): string | undefined {
  return process.env[name] || undefined;
}

/** The name in a variable: of an organism or of a listener. */
function nameIn(key: string): string {
  const name = needed(key);
  if (!/^[a-z][a-z0-9-]{0,63}$/.test(name)) {
    const expected = "a lowercase letter, then up to 63 lowercase letters, digits or hyphens";
    throw new FatalError(`${key} is \`${name}\`, not a name: ${expected}`);
  }
  return name;
}

function needed(name: string): string {
  const value = variable(name);
  if (!value) {
    throw new FatalError(`ORGANISM_BUS_URL is set, and needs ${name} beside it`);
  }
  return value;
}
