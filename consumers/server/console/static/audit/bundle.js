// What was published, as a file: JSON lines, of which nothing is taken on trust.

import { Unreadable, decode, fromBase64, fromHex } from "./bytes.js";
import { parseStrictly } from "./json.js";

const FORMAT = 1; // of a model's history
const ERASURE_FORMAT = 2; // of the evidence of an erasure
const LINE_BYTES = 4 << 20;
const MAX_LINES = 50_000_000;
const HASH_BYTES = 32;
const MAX_PATH = 64; // hashes: of a log of 2^64 receipts
const MAX_ID = 128;
const SALT = /^[0-9a-f]{64}$/;
const INDEX = /^(?:0|[1-9][0-9]{0,8})$/; // of a partition, as the name of a member
export const STORED = -1; // partition and offset of what has left the log and the state still keeps

/** Yield the lines of a file without their ends; the last one must have one, too. */
async function* lines(file) {
  const reader = file.stream().getReader();
  let rest = [];
  let held = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    let begin = 0;
    for (let end = value.indexOf(10); end >= 0; end = value.indexOf(10, begin)) {
      if (held + end - begin >= LINE_BYTES) throw new Unreadable(`a line is longer than ${LINE_BYTES} bytes, more than a record can have`);
      yield joined([...rest, value.subarray(begin, end)]);
      rest = [];
      held = 0;
      begin = end + 1;
    }
    if (begin < value.length) {
      rest.push(value.slice(begin));
      held += value.length - begin;
      if (held >= LINE_BYTES) throw new Unreadable(`a line is longer than ${LINE_BYTES} bytes, more than a record can have`);
    }
  }
  if (held) throw new Unreadable("the last line is incomplete: the file was truncated; export it again");
}

function joined(parts) {
  if (parts.length === 1) return parts[0];
  const all = new Uint8Array(parts.reduce((length, part) => length + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/** Yield the header, then what the lines hold, in the order of the file: objects with one member each. */
export async function* read(file) {
  let number = 0;
  let records = 0;
  let ended = false;
  let header = null;
  const bad = (what) => new Unreadable(`line ${number}: ${what}`);
  for await (const line of lines(file)) {
    number += 1;
    if (number > MAX_LINES) throw bad(`a bundle has at most ${MAX_LINES} lines`);
    if (ended) throw bad("there is data after the last line");
    const document = parsed(line, bad);
    if (number === 1) {
      header = headerOf(document, bad);
      yield { header };
    } else if (Object.hasOwn(document, "lethe_bundle_end")) {
      if (document.records !== records) throw bad(`${records} records were read, but the last line gives another count`);
      ended = true;
    } else if (Object.hasOwn(document, "topic")) {
      records += 1;
      yield { record: recordOf(document, bad) };
    } else if (header.erasureId !== null) {
      const item = ofErasure(document, bad);
      if (item !== null) yield item;
    } else if (Object.hasOwn(document, "receipt_log")) {
      yield { leaves: hashes(document.receipt_log, "receipt_log", bad) };
    }
  }
  if (number === 0) throw new Unreadable(NOT_WRITTEN);
  if (!ended) throw new Unreadable(`ends after line ${number} without its closing line: it was truncated; export it again`);
}

/** Return what a line holds that only the evidence of an erasure has; null if nobody knows it. */
function ofErasure(document, bad) {
  if (Object.hasOwn(document, "model_id")) return { part: named(document.model_id, "model", bad) };
  const members = (name) => {
    const value = document[name];
    return value !== null && typeof value === "object" && !Array.isArray(value) ? value : {};
  };
  if (Object.hasOwn(document, "inclusion")) {
    const { leaf, version, index, path } = members("inclusion");
    const proof = { leaf: hashes(leaf, "leaf", bad), version, index, path: hashes(path, "path", bad) };
    const whole = proof.leaf.length === 1 && proof.path.length <= MAX_PATH && isCount(version) && isCount(index);
    if (!whole) throw bad("is not an inclusion proof with leaf, version, index and path");
    return { proof: { ...proof, leaf: proof.leaf[0] } };
  }
  if (Object.hasOwn(document, "opening")) {
    const { subject_id: subjectId, salt } = members("opening");
    if (typeof subjectId !== "string" || typeof salt !== "string" || !SALT.test(salt)) throw bad("opening does not hold a subject_id and a salt");
    return { opening: { subjectId, salt: fromHex(salt) } };
  }
  return null;
}

function hashes(value, what, bad) {
  const bytes = fromBase64(value);
  if (bytes === null) throw bad(`${what} is not base64`);
  if (bytes.length % HASH_BYTES) throw bad(`${what} is cut within a hash`);
  const found = [];
  for (let at = 0; at < bytes.length; at += HASH_BYTES) found.push(bytes.subarray(at, at + HASH_BYTES));
  return found;
}

function named(name, what, bad) {
  if (typeof name !== "string" || name === "" || [...name].length > MAX_ID) throw bad(`names no ${what}`);
  return name;
}

function parsed(line, bad) {
  let document;
  try {
    document = parseStrictly(decode(line));
  } catch {
    throw bad("is not JSON that can be read in one way only");
  }
  if (document === null || typeof document !== "object" || Array.isArray(document)) throw bad("is not a JSON object");
  return document;
}

/** Whether a value is a whole number from 0 on; -0.0 is none. */
export function isCount(value) {
  return Number.isSafeInteger(value) && value >= 0 && !Object.is(value, -0);
}

const NOT_WRITTEN = "was not written by `lethe audit --export` or `lethe erasures --bundle`";

function headerOf(document, bad) {
  if (!Object.hasOwn(document, "lethe_bundle")) throw new Unreadable(NOT_WRITTEN);
  const format = document.lethe_bundle;
  if (format !== FORMAT && format !== ERASURE_FORMAT) throw new Unreadable(`is not in a format from ${FORMAT} to ${ERASURE_FORMAT}, the only ones that this page reads`);
  const { public_keys: keys, receipts_begin: begins, registration } = document;
  const header = {
    modelId: null,
    erasureId: null,
    exportedAt: String(document.exported_at ?? "").slice(0, 40),
    publicKeys: Array.isArray(keys) ? keys.filter((key) => typeof key === "string") : [],
    truncated: false,
    ridge: typeof registration?.ridge === "number" && registration.ridge >= 0 ? registration.ridge : null,
    certified: Boolean(registration?.certified),
  };
  if (format === ERASURE_FORMAT) return { ...header, erasureId: named(document.erasure_id, "erasure", bad) };
  const modelId = named(document.model_id, "model", bad);
  if (typeof (begins ?? {}) !== "object" || Array.isArray(begins)) throw bad("receipts_begin does not give offsets by partition");
  const offsets = Object.entries(begins ?? {});
  if (!offsets.every(([index, offset]) => INDEX.test(index) && isCount(offset))) throw bad("receipts_begin does not give offsets by partition");
  return { ...header, modelId, truncated: offsets.some(([, offset]) => offset > 0) };
}

function recordOf(document, bad) {
  const { topic, partition, offset, headers = [] } = document;
  const pairs = Array.isArray(headers) && headers.every((pair) => Array.isArray(pair) && pair.length === 2 && typeof pair[0] === "string");
  const placed = (isCount(partition) && isCount(offset)) || (partition === STORED && offset === STORED);
  if (typeof topic !== "string" || !placed || !pairs) {
    throw bad("is not a record with topic, partition, offset, headers and value");
  }
  const bytes = (value, what) => {
    const found = fromBase64(value);
    if (found === null) throw bad(`${what} is not base64`);
    return found;
  };
  return {
    topic,
    partition,
    offset,
    value: bytes(document.value, "value"),
    headers: headers.map(([name, value]) => [name, bytes(value, `header ${name.slice(0, 40)}`)]),
  };
}
