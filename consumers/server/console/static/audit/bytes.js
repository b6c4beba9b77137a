// Bytes, text and hashes.

const ENCODER = new TextEncoder();
const DECODER = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** What is wrong with a file: it is not judged at all. */
export class Unreadable extends Error {}

/** What is wrong with a record: the check "records" fails. */
export class Broken extends Error {}

export function encode(text) {
  return ENCODER.encode(text);
}

export function decode(bytes) {
  return DECODER.decode(bytes);
}

/** Return the bytes in base64, if that is the base64 of these bytes, or null. */
export function fromBase64(text) {
  if (typeof text !== "string") return null;
  let letters;
  try {
    letters = atob(text);
  } catch {
    return null;
  }
  if (btoa(letters) !== text) return null;
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i += 1) bytes[i] = letters.charCodeAt(i);
  return bytes;
}

export function hex(bytes) {
  let text = "";
  for (const byte of bytes) text += byte.toString(16).padStart(2, "0");
  return text;
}

export function concat(...parts) {
  const joined = new Uint8Array(parts.reduce((length, part) => length + part.length, 0));
  let at = 0;
  for (const part of parts) {
    joined.set(part, at);
    at += part.length;
  }
  return joined;
}

export async function sha256(bytes) {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
}

export async function hmacSha256(key, bytes) {
  const imported = await crypto.subtle.importKey("raw", key, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  return new Uint8Array(await crypto.subtle.sign("HMAC", imported, bytes));
}

/** Return the bytes in hexadecimal. */
export function fromHex(text) {
  return Uint8Array.from(text.match(/../g) ?? [], (byte) => parseInt(byte, 16));
}
