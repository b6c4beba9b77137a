// Bytes, text and hashes.

const ENCODER = new TextEncoder();
const DECODER = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const BASE64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/;

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

/** Return the bytes in base64, or null. */
export function fromBase64(text) {
  if (typeof text !== "string" || !BASE64.test(text)) return null;
  const letters = atob(text);
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
