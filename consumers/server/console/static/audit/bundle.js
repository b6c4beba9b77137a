// An exported history as a file: JSON lines, of which nothing is taken on trust.

import { Unreadable, decode, fromBase64 } from "./bytes.js";
import { parseStrictly } from "./json.js";

const FORMAT = 1;
const LINE_BYTES = 4 << 20;
const MAX_LINES = 50_000_000;
const HASH_BYTES = 32;
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

/** Yield the header, then records and leaf hashes, in the order of the file. */
export async function* read(file) {
  let number = 0;
  let records = 0;
  let ended = false;
  const bad = (what) => new Unreadable(`line ${number}: ${what}`);
  for await (const line of lines(file)) {
    number += 1;
    if (number > MAX_LINES) throw bad(`a bundle has at most ${MAX_LINES} lines`);
    if (ended) throw bad("there is data after the last line");
    const document = parsed(line, bad);
    if (number === 1) {
      yield { header: headerOf(document, bad) };
    } else if (Object.hasOwn(document, "lethe_bundle_end")) {
      if (document.records !== records) throw bad(`${records} records were read, but the last line gives another count`);
      ended = true;
    } else if (Object.hasOwn(document, "topic")) {
      records += 1;
      yield { record: recordOf(document, bad) };
    } else if (Object.hasOwn(document, "receipt_log")) {
      const leaves = fromBase64(document.receipt_log);
      if (leaves === null) throw bad("receipt_log is not base64");
      if (leaves.length % HASH_BYTES) throw bad("receipt_log is cut within a hash");
      yield { leaves };
    }
  }
  if (number === 0) throw new Unreadable("was not written by `lethe audit --export`");
  if (!ended) throw new Unreadable(`ends after line ${number} without its closing line: it was truncated; export it again`);
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

function headerOf(document, bad) {
  if (!Object.hasOwn(document, "lethe_bundle")) throw new Unreadable("was not written by `lethe audit --export`");
  if (document.lethe_bundle !== FORMAT) throw new Unreadable(`is not in format ${FORMAT}, the only one that this page reads`);
  const { model_id: modelId, public_keys: keys, receipts_begin: begins } = document;
  if (typeof modelId !== "string" || modelId === "" || [...modelId].length > 128) throw bad("names no model");
  if (typeof (begins ?? {}) !== "object" || Array.isArray(begins)) throw bad("receipts_begin does not give offsets by partition");
  const offsets = Object.entries(begins ?? {});
  if (!offsets.every(([index, offset]) => INDEX.test(index) && isCount(offset))) throw bad("receipts_begin does not give offsets by partition");
  return {
    modelId,
    exportedAt: String(document.exported_at ?? "").slice(0, 40),
    publicKeys: Array.isArray(keys) ? keys.filter((key) => typeof key === "string") : [],
    truncated: offsets.some(([, offset]) => offset > 0),
  };
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
