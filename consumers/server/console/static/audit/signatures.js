// Ed25519 signatures of records: which key, and whether it signed exactly these bytes.

import { concat, decode, encode, fromBase64, hex, sha256 } from "./bytes.js";

export const HEADER = "lethe-signature";
const FORM = /^ed25519:([0-9a-f]{16}):([A-Za-z0-9+/]{85}[AQgw]==)$/;
const PEM = /-----BEGIN PUBLIC KEY-----([\s\S]*?)-----END PUBLIC KEY-----/g;
// What stands before the 32 bytes of an Ed25519 key in a PEM block (RFC 8410).
const PREFIX = "302a300506032b6570032100";

/** The public keys whose signatures count, by the ids that signatures name. */
export class TrustedKeys {
  static async of(publicKeys) {
    const keys = new TrustedKeys();
    keys.byId = new Map();
    for (const bytes of publicKeys) {
      const id = hex(await sha256(bytes)).slice(0, 16);
      keys.byId.set(id, await crypto.subtle.importKey("raw", bytes, "Ed25519", false, ["verify"]));
    }
    return keys;
  }

  /** Return {key, valid, detail}: key null if there is no signature. */
  async judge(type, value, headers) {
    const signatures = headers.filter(([name]) => name.toLowerCase() === HEADER).map(([, content]) => content);
    if (signatures.length === 0) return { key: null, valid: false, detail: "not signed" };
    const named = textOf(signatures[0]).split(":")[1]?.slice(0, 16) ?? "?";
    if (signatures.length > 1) return { key: named, valid: false, detail: "it has more than one signature" };
    const match = FORM.exec(textOf(signatures[0]));
    if (match === null) return { key: named, valid: false, detail: `its header ${HEADER} does not hold an Ed25519 signature` };
    const key = this.byId.get(match[1]);
    if (key === undefined) return { key: named, valid: false, detail: `it is signed by key ${match[1]}, which is not trusted` };
    const valid = await crypto.subtle.verify("Ed25519", key, fromBase64(match[2]), signedBytes(type, value));
    return { key: named, valid, detail: valid ? `signed by trusted key ${named}` : `it does not match its signature by key ${named}` };
  }
}

function textOf(bytes) {
  try {
    return decode(bytes);
  } catch {
    return "";
  }
}

/** Return the pre-authentication encoding of DSSE. */
function signedBytes(type, value) {
  const name = encode(type);
  return concat(encode(`DSSEv1 ${name.length} `), name, encode(` ${value.length} `), value);
}

/** Return the public keys in a text: one a line in base64, or PEM blocks; throws if there is another. */
export function keysIn(text) {
  const keys = [];
  const rest = text.replace(PEM, (_, block) => {
    const bytes = fromBase64(block.replace(/\s/g, ""));
    if (bytes === null || bytes.length !== 44 || hex(bytes.subarray(0, 12)) !== PREFIX) throw new Error("A PEM block holds no Ed25519 public key.");
    keys.push(bytes.subarray(12));
    return "";
  });
  rest.split("\n").forEach((line, i) => {
    const word = line.split("#")[0].trim().split(/\s+/)[0];
    if (word === "") return;
    const bytes = fromBase64(word);
    if (bytes === null || bytes.length !== 32) throw new Error(`Line ${i + 1} of the keys is no Ed25519 public key.`);
    keys.push(bytes);
  });
  return keys;
}
