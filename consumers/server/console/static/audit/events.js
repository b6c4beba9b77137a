// The events in records: read in one way, checked member by member, and their digests.

import { Broken, concat, decode, encode, hex, sha256 } from "./bytes.js";
import { isCount } from "./bundle.js";
import { canonical, parseStrictly } from "./json.js";

export const VERSIONS = "lethe.versions";
export const RECEIPTS = "lethe.receipts";
export const MODELS = "lethe.models";
export const ERASURE_RECEIPTS = "lethe.erasure-receipts";
export const ERASURE_TYPE = "lethe.subject.erasure.completed.v1";
export const TYPES = {
  [VERSIONS]: "lethe.model.version.v1",
  [RECEIPTS]: "lethe.deletion.receipt.v1",
  [MODELS]: "lethe.model.parameters.v1",
};

const HASH = /^[0-9a-f]{64}$/;
const TIME = /^(?!0000)\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z$/; // the one form in which Lethe writes times

// -- what a member may be -------------------------------------------------------------------------

const text = (value) => typeof value === "string";
const whole = (value) => Number.isSafeInteger(value) && !Object.is(value, -0);
const count = isCount;
const number = (value) => typeof value === "number";
const time = (value) => text(value) && TIME.test(value) && !Number.isNaN(Date.parse(value)) && new Date(value).toISOString() === value;
const hash = (value) => text(value) && HASH.test(value);
const flag = (value) => typeof value === "boolean";
const list = (of) => (value) => Array.isArray(value) && value.every(of);
const either = (...kinds) => (value) => kinds.some((kind) => kind(value));
const none = (value) => value === null;
const maybe = (kind) => either(none, kind);
const among = (...values) => (value) => values.includes(value);
const optional = (kind) => Object.assign((value) => value === undefined || kind(value), { optional: true });
const object = (members) => (value) =>
  value !== null && typeof value === "object" && !Array.isArray(value) && wrong(value, members) === null;

/** Return the first member that is missing or of another kind, or null. */
function wrong(value, members) {
  for (const [name, kind] of Object.entries(members)) {
    if (!Object.hasOwn(value, name) ? !kind.optional : !kind(value[name])) return name;
  }
  return null;
}

const STATUS = among("ACTIVE", "EMPTY", "INTERCEPT_PENALISED", "UNREGISTERED");
const KIND = among("linear", "logistic", "poisson", "softmax");
const ERROR = object({
  value: maybe(number), kind: among("rounded", "exact", "estimate", "certificate", "unknown"), bound: maybe(number),
  certified_version: maybe(whole), budget: number, relative: maybe(number),
});
const CERTIFICATE = either(
  object({ epsilon: number, delta: number, sigma: number, spent: number, budget: number }),
  object({ epsilon: number, delta: number, sigma: number, alpha: number, versions: count, noised: count, epsilon_spent: number }),
);
const IDENTITY = {
  model_id: text, generation: whole, version: whole, prev_digest: text, digest: text, parameters_digest: text,
  method: text, kind: KIND, status: STATUS, created_at: time,
};
const VERSION = {
  ...IDENTITY, rows_live: whole, rows_deleted: whole, error: ERROR, request_ids: optional(list(text)),
  refresh: optional(maybe(object({ job_id: text, size: among("complete", "polish", "compact", "rebuild"), reason: text, seconds: number }))),
  source: optional(maybe(object({ topic: text, partition: whole, first_offset: whole, last_offset: whole }))),
  commit: whole, commit_prev: text, receipt_log: optional(maybe(object({ size: count, root: hash }))), completed: optional(flag),
  preprocess: optional(maybe(among("live", "frozen"))), certificate: optional(maybe(CERTIFICATE)),
};
const SOURCE = object({ topic: text, partition: whole, offset: whole });
const RECEIPT = {
  request_id: text, model_id: text, op: optional(among("delete", "insert", "correct")),
  status: among("APPLIED", "ALREADY_APPLIED", "REJECTED", "DEFERRED"), code: optional(maybe(text)), detail: optional(maybe(text)),
  rows_deleted: optional(whole), rows_inserted: optional(whole), rows_corrected: optional(whole), rows_unknown: optional(whole),
  version: optional(maybe(whole)), generation: optional(maybe(whole)), error: optional(maybe(ERROR)), source: SOURCE,
  completed_at: time, conflicts_with: optional(maybe(SOURCE)), rows_commitment: optional(maybe(hash)), certificate: optional(maybe(CERTIFICATE)),
};
const COLUMN = {
  name: text, step: among("numeric", "date", "one-hot", "ordinal", "target-encode"), impute: optional(maybe(number)), mean: optional(number), deviation: optional(number),
  categories: optional(list(either(none, text, whole, flag))), values: optional(list(number)), vanished: optional(list(whole)),
  otherwise: optional(maybe(number)), ignores_unknown: optional(flag), of: optional(text),
};
const PARAMETERS = {
  ...IDENTITY, feature_names: list(text), target_names: list(text), fit_intercept: flag,
  intercept: optional(either(none, number, list(number))), theta: optional(either(none, list(number), list(list(number)))),
  uri: optional(maybe(text)), classes: optional(list(text)), columns: optional(list(object(COLUMN))),
};

const MODEL_ERASURE = {
  model_id: text, status: among("APPLIED", "ALREADY_APPLIED", "REJECTED", "DEFERRED", "AWAITED", "NOT_COVERED"),
  code: optional(maybe(text)), detail: optional(maybe(text)), request_ids: optional(list(text)), rows_deleted: optional(whole), version: optional(maybe(whole)),
};
const ERASURE = {
  erasure_id: text, namespace: optional(maybe(text)), op: optional(among("erase", "lift")), status: among("PENDING", "COMPLETE", "INCOMPLETE", "REJECTED"),
  complete: flag, code: optional(maybe(text)), detail: optional(maybe(text)), models: optional(list(object(MODEL_ERASURE))), awaited: optional(list(text)),
  unknown: optional(flag), similar: optional(list(text)), rows_deleted: optional(whole), subject_commitment: optional(maybe(hash)), source: SOURCE,
  completed_at: optional(maybe(time)), conflicts_with: optional(maybe(SOURCE)),
};

// -- reading --------------------------------------------------------------------------------------

/** Return the data of a record: an object of a type, about a model, or else what `what` says. */
function dataOf(record, name, place, expected = TYPES[record.topic], what = "model") {
  const named = new Map();
  for (const [name, value] of record.headers) named.set(name.toLowerCase(), value);
  let data;
  let type = named.has("ce_type") ? loose(named.get("ce_type")) : null;
  try {
    data = parseStrictly(decode(record.value));
  } catch (error) {
    throw new Broken(`the record at ${place} does not parse: ${error.message}`);
  }
  const plain = data !== null && typeof data === "object" && !Array.isArray(data);
  const looks = !named.has("ce_type") && plain && ["specversion", "type", "id", "source", "data"].every((name) => Object.hasOwn(data, name));
  if (loose(named.get("content-type")).startsWith("application/cloudevents+json") || looks) {
    if (!plain || !Object.hasOwn(data, "data")) throw new Broken(`the record at ${place} is a structured CloudEvent without data`);
    type = text(data.type) ? data.type : null;
    data = data.data;
  }
  if (type !== null && type !== expected) throw new Broken(`the record at ${place} is of type ${type}, not ${expected}`);
  if (data === null || typeof data !== "object" || Array.isArray(data) || data[`${what}_id`] !== name) {
    throw new Broken(`the record at ${place} is not about ${what} ${name}`);
  }
  return data;
}

function loose(bytes) {
  return bytes === undefined ? "" : new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
}

function checked(data, members, place, what) {
  const member = wrong(data, members);
  if (member !== null) throw new Broken(`the record at ${place} ${what}: ${member} is missing or of another kind`);
  return data;
}

/** Return a version whose digest is that of its content. */
export async function versionOf(record, modelId, place) {
  const data = checked(dataOf(record, modelId, place), VERSION, place, "is not a version");
  const { digest, ...content } = data;
  if (hex(await sha256(encode(canonical(content)))) !== digest) {
    throw new Broken(`version ${data.version} at ${place}: its digest does not match its content; do not load it`);
  }
  return { receipt_log: null, refresh: null, source: null, request_ids: [], ...data };
}

export function receiptOf(record, modelId, place) {
  const data = checked(dataOf(record, modelId, place), RECEIPT, place, "is not a receipt");
  return { code: null, version: null, generation: null, rows_deleted: 0, rows_inserted: 0, ...data };
}

export function erasureOf(record, erasureId, place) {
  const data = checked(dataOf(record, erasureId, place, ERASURE_TYPE, "erasure"), ERASURE, place, "is not a combined receipt");
  const models = (data.models ?? []).map((one) => ({ code: null, request_ids: [], rows_deleted: 0, version: null, ...one }));
  const others = { namespace: null, op: "erase", awaited: [], unknown: false, rows_deleted: 0, subject_commitment: null, completed_at: null };
  return { ...others, ...data, models };
}

export function parametersOf(record, modelId, place) {
  const data = checked(dataOf(record, modelId, place), PARAMETERS, place, "holds no parameters");
  return { theta: null, intercept: null, uri: null, classes: [], columns: [], ...data };
}

/** Whether all of some parameters is in their digest, but for what they have in common with their version. */
export function isCovered(event) {
  const known = (value, members) => Object.keys(value).every((name) => Object.hasOwn(members, name));
  const whole = event.theta !== null && event.uri === null && (event.fit_intercept || event.intercept === null);
  return whole && known(event, PARAMETERS) && event.columns.every((column) => known(column, COLUMN));
}

/** Return the digest of the parameters that an event holds; throws Broken if their shape is another. */
export async function parametersDigest(event) {
  const { feature_names: features, target_names: targets, classes, columns, fit_intercept: intercept } = event;
  const outputs = classes.length > 2 ? classes.length : targets.length;
  const theta = event.theta.flat();
  const ragged = event.theta.some((row) => Array.isArray(row) && row.length !== event.theta[0].length);
  const last = intercept ? [event.intercept].flat() : [];
  if (ragged || theta.length !== features.length * outputs || last.length !== (intercept ? outputs : 0) || last.includes(null)) {
    throw new Broken(`the parameters of version ${event.version} are not of the shape that they declare`);
  }
  const hashed = [...theta, ...last, ...columns.flatMap(numbersOf)];
  const numbers = new DataView(new ArrayBuffer(8 * hashed.length));
  hashed.forEach((value, i) => numbers.setFloat64(8 * i, value, true));
  const layout = { feature_names: features, fit_intercept: intercept, shape: [features.length, outputs], target_names: targets };
  if (classes.length) layout.classes = classes;
  if (columns.length) layout.columns = columns.map(fixedPart);
  const head = encode(`lethe.parameters.v1\n${canonical(layout)}\n`);
  return hex(await sha256(concat(head, new Uint8Array(numbers.buffer))));
}

/** Return what of a fitted column does not change with rows; members at their defaults are left out. */
function fixedPart({ name, step, categories = [], ignores_unknown: ignores = false, of = "" }) {
  const more = { ...(ignores && { ignores_unknown: true }), ...(of && { of }) };
  return { name, step, ...(categories.length && { categories }), ...more };
}

/** Return what of a fitted column changes with rows, each list after its length. */
function numbersOf({ impute = null, mean = 0, deviation = 1, values = [], vanished = [], otherwise = null }) {
  return [
    Number(impute !== null), impute || 0, mean, deviation, values.length, ...values, vanished.length, ...vanished,
    Number(otherwise !== null), otherwise || 0,
  ];
}
