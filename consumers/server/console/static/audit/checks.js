// The checks of an audit on a history alone, in the order of `lethe audit --bundle`, and as strict.

import { isCount } from "./bundle.js";
import { hex } from "./bytes.js";
import { MODELS, RECEIPTS, VERSIONS } from "./events.js";
import { COMMON, Faults, alike } from "./history.js";
import { parseStrictly } from "./json.js";
import { Frontier, rootOf } from "./merkle.js";

export const OK = "OK";
export const FAILED = "FAILED";
export const NOT_PROVED = "NOT PROVED";
export const NOT_CHECKED = "NOT CHECKED";

export const REFUSED = "REFUSED";
export const HOLDS = "no check failed";

/** Return what all findings come to: REFUSED, NOT_PROVED or HOLDS. */
export function verdictOf(found) {
  const results = found.map((one) => one.result);
  if (results.includes(FAILED)) return REFUSED;
  return results.includes(NOT_PROVED) ? NOT_PROVED : HOLDS;
}

export const finding = (check, faults, fine) =>
  faults.count ? { check, result: FAILED, detail: String(faults) } : { check, result: OK, detail: fine };
export const unproved = (check, reason) => ({ check, result: NOT_PROVED, detail: reason });
export const passedOver = (check, reason) => ({ check, result: NOT_CHECKED, detail: reason });

/** Return the findings. `trusted`: the keys were named by whoever asks. `seen`: a checkpoint, or null. */
export async function findings(history, { trusted, seen }) {
  const counts = history.records;
  const recovered = history.recovered ? ` (${history.recovered} of them kept by the state)` : "";
  const read = `versions ${counts[VERSIONS]}, receipts ${counts[RECEIPTS]}${recovered}, parameters ${counts[MODELS]}`;
  const found = [
    finding("records", history.faults, read),
    chain(history),
    signatures(Object.values(history.signatures), (faults) => unvouched(history, faults), trusted),
    parameters(history),
    receipts(history),
    rowsDeleted(history),
    await receiptLog(history),
  ];
  if (seen !== null) found.push(await checkpoint(history, seen));
  found.push(passedOver("bound", "needs the training rows: `lethe audit --bundle FILE --data ROWS --id COLUMN --deleted IDS`"));
  return found;
}

export function chain(history) {
  const faults = new Faults();
  faults.addAll(history.forks);
  faults.addAll(history.disorder);
  if (!history.versions.size) {
    if (!history.partial) faults.add(`model ${history.modelId} has no version`);
    return finding("chain", faults, "no version has come of it");
  }
  const numbers = history.numbers;
  let previous = null;
  for (const number of numbers) {
    const event = history.versions.get(number).event;
    const fault = previous === null && history.partial ? null : brokenLink(event, previous);
    if (fault) faults.add(`version ${number}: ${fault}`);
    previous = event;
  }
  const several = `versions ${numbers[0]} to ${numbers.at(-1)}, dense and linked`;
  return finding("chain", faults, numbers.length > 1 ? several : `version ${numbers[0]}`);
}

function brokenLink(event, previous) {
  if (previous === null) {
    if (event.version !== 0) return "history begins with it; the versions before it are missing";
    return event.prev_digest === "" ? null : "the first version links to something before it";
  }
  if (event.version !== previous.version + 1) return `follows version ${previous.version}; a version is missing`;
  if (event.prev_digest !== previous.digest) return `does not link to version ${previous.version}; do not load it`;
  if (event.commit <= previous.commit) return `its commit ${event.commit} does not follow commit ${previous.commit} of the version before`;
  return null;
}

/** `alone` reports what is unsigned and should not be, and returns what else nothing vouches for. */
export function signatures(topics, alone, trusted) {
  const faults = new Faults();
  const byKey = new Map();
  for (const one of topics) {
    faults.addAll(one.faults);
    for (const [key, count] of one.byKey) byKey.set(key, (byKey.get(key) ?? 0) + count);
  }
  const keys = [...byKey].sort().map(([key, count]) => `${count} records by key ${key}`).join(", ");
  if (faults.count) return finding("signatures", faults, "");
  if (byKey.has("?")) return unproved("signatures", `${byKey.get("?")} records are signed: name trusted keys to see by whom`);
  if (!byKey.size && !trusted) return unproved("signatures", "nothing is signed: it may be from anybody");
  const unsigned = alone(faults);
  if (!trusted && !faults.count) return unproved("signatures", `${keys}, which the file itself names: name those that you trust`);
  if (unsigned && !faults.count) {
    const signed = keys && `${keys}; `;
    return unproved("signatures", `${signed}no trusted key signed ${unsigned}, and no signed version vouches for it`);
  }
  return finding("signatures", faults, keys);
}

/** Report what is unsigned and should not be; return what else nothing vouches for. */
export function unvouched(history, faults) {
  const { signed } = history;
  if (signed === null && !history.partial) {
    faults.add("no version is signed although keys are trusted: it may be from anybody");
    return "";
  }
  const [oldest, newest] = signed ?? [Infinity, -1];
  for (const number of history.numbers) {
    if (number > oldest && !history.signatures[VERSIONS].numbers.has(number)) {
      faults.add(`version ${number} is not signed, but version ${oldest} before it is`);
    }
  }
  const covered = signed === null ? new Set() : history.covered(newest);
  const { signed: signedReceipts, unsigned } = history.signatures[RECEIPTS];
  const began = signed === null ? Infinity : Date.parse(history.versions.get(oldest).event.created_at);
  let uncovered = 0;
  for (const leaf of unsigned) {
    if (signedReceipts.has(leaf) || covered.has(leaf)) continue;
    uncovered += 1;
    const receipt = history.receipts.get(leaf);
    if (receipt.completedAt >= began) faults.add(`the receipt at ${receipt.place} is not signed`);
  }
  const models = history.signatures[MODELS];
  const open = [...models.unsigned].filter((leaf) => !models.signed.has(leaf) && !inVersion(history, history.parametersFacts.get(leaf), newest));
  const parts = [[signed === null ? history.versions.size : 0, "versions"], [uncovered, "receipts"], [open.length, "parameters"]];
  return parts.filter(([count]) => count).map(([count, what]) => `${count} ${what}`).join(" and ");
}

function inVersion(history, parameters, newest) {
  const event = history.versions.get(parameters.version)?.event;
  return event !== undefined && parameters.version <= newest && parameters.covered && alike(parameters, event);
}

function parameters(history) {
  const name = "parameters";
  const tip = history.tip;
  if (history.parametersFaults.count || tip === null) return finding(name, history.parametersFaults, "there is no version");
  const newest = tip.event.version;
  const event = history.parameters;
  const faults = new Faults();
  if (event === null || event.version < newest) {
    const older = event === null ? "" : `; the newest are for version ${event.version}`;
    return unproved(name, `there are none for version ${newest}${older}`);
  }
  if (event.version > newest) {
    faults.add(`there are some of version ${event.version}, but history ends with version ${newest}: it was truncated`);
  } else if (history.hasOthers(event)) {
    faults.add(`there are others for version ${newest}, which no version names`);
  } else if (COMMON.some((field) => event[field] !== tip.event[field])) {
    faults.add(`they are not the ones that version ${newest} names; do not load them`);
  } else if (event.theta === null) {
    return passedOver(name, `theta of version ${newest} is too large for an event; it is in the store`);
  }
  return finding(name, faults, `they have the digest that version ${newest} names`);
}

export function receipts(history) {
  const faults = new Faults();
  const missing = [];
  for (const several of history.contradictions.values()) {
    const [first, ...others] = several.filter((one) => !history.precedesModel(one));
    for (const other of others) {
      faults.add(`request ${other.requestId} has two different final receipts: ${first.status} and ${other.status}`);
    }
  }
  const listed = new Map();
  for (const number of history.numbers) {
    const { event } = history.versions.get(number);
    for (const request of event.request_ids) {
      if (listed.has(request)) faults.add(`request ${request} is in versions ${listed.get(request)} and ${number}`);
      listed.set(request, number);
      const receipt = history.finals.get(request);
      if (receipt !== undefined) answers(receipt, event, faults);
      else if (!history.partial) missing.push(number);
    }
  }
  for (const receipt of history.finals.values()) {
    if (receipt.status === "APPLIED" && listed.get(receipt.requestId) !== receipt.version) {
      faults.add(`the receipt of ${receipt.requestId} names version ${receipt.version}, which does not list it or does not exist`);
    }
  }
  if (!history.truncated) {
    order(history, faults);
    for (const number of missing) faults.add(`a request of version ${number} has no receipt`);
  }
  if (faults.count || !missing.length) {
    const count = history.finals.size;
    return finding("receipts", faults, `${count} request${count === 1 ? "" : "s"}, each with one final receipt; versions agree with them`);
  }
  return unproved("receipts", `${missing.length} requests of versions have no receipt here: receipts have expired from the log`);
}

/** Compare a receipt with the version that lists its request. */
function answers(receipt, event, faults) {
  const allowed = event.refresh === null ? ["APPLIED"] : ["APPLIED", "ALREADY_APPLIED"];
  if (!allowed.includes(receipt.status) || receipt.version !== event.version || receipt.generation !== event.generation) {
    faults.add(`version ${event.version} lists request ${receipt.requestId}, whose receipt says ${receipt.status} in version ${receipt.version}`);
  }
}

/** Check that receipts of later versions come after those of earlier ones. */
function order(history, faults) {
  const newest = new Map();
  for (const receipt of history.receipts.values()) {
    if (receipt.version === null || receipt.partition < 0) continue;
    const before = newest.get(receipt.partition) ?? -1;
    if (receipt.version < before) {
      faults.add(`the receipt at ${receipt.place} is of version ${receipt.version} but comes after one of version ${before}`);
    }
    newest.set(receipt.partition, Math.max(before, receipt.version));
  }
}

function rowsDeleted(history) {
  const faults = new Faults();
  let passed = 0;
  let checked = 0;
  let total = 0;
  const sums = new Map();
  const added = new Map();
  for (const receipt of history.finals.values()) {
    if (receipt.status !== "APPLIED" || receipt.version === null) continue;
    sums.set(receipt.version, (sums.get(receipt.version) ?? 0) + receipt.rowsDeleted);
    added.set(receipt.version, (added.get(receipt.version) ?? 0) + receipt.rowsInserted);
    total += receipt.rowsDeleted;
  }
  for (const number of history.numbers) {
    const { event } = history.versions.get(number);
    const before = history.versions.get(number - 1)?.event ?? null;
    if ((before === null && number > 0) || !event.request_ids.every((request) => history.finals.has(request))) {
      passed += 1;
      continue;
    }
    checked += 1;
    const gone = event.rows_deleted - (before?.rows_deleted ?? 0);
    const said = sums.get(number) ?? 0;
    if (gone !== said) {
      faults.add(`version ${number} deleted ${gone} rows, but its receipts say ${said}`);
    } else if (before !== null && event.source !== null) {
      const left = before.rows_live - event.rows_live;
      const inserted = added.get(number) ?? 0;
      if (left !== gone - inserted) faults.add(`version ${number} deleted ${gone} rows and inserted ${inserted}, but has ${left} fewer`);
    }
  }
  if (!faults.count && passed) {
    return unproved("rows deleted", `${passed} of ${passed + checked} versions lack receipts here; the others agree`);
  }
  return finding("rows deleted", faults, `${total} rows, in versions and in receipts alike`);
}

// -- the receipt log ------------------------------------------------------------------------------

/** Return the leaves of the log; for a history that came without them, from the receipts. */
function leavesOf(history) {
  if (history.leaves.length) return history.leaves;
  return [...history.receipts.values()]
    .filter((receipt) => history.finals.get(receipt.requestId) === receipt && !history.precedesModel(receipt))
    .map((receipt) => Uint8Array.from(receipt.leaf.match(/../g), (byte) => parseInt(byte, 16)));
}

/** Recompute every tree head from one list of leaves, so that each extends the one before. */
async function receiptLog(history) {
  const name = "receipt log";
  if (history.truncated && !history.leaves.length) {
    return unproved(name, "receipts have expired from the log, and their leaf hashes are not available");
  }
  const faults = new Faults();
  const leaves = leavesOf(history);
  const frontier = new Frontier();
  for (const number of history.numbers) {
    const head = history.versions.get(number).event.receipt_log;
    if (head === null) faults.add(`version ${number} has no tree head`);
    else if (head.size < frontier.size) faults.add(`version ${number}: its receipt log has shrunk to ${head.size}`);
    else if (head.size > leaves.length) faults.add(`version ${number} has ${head.size} receipts in its log, but ${leaves.length} are known`);
    else {
      while (frontier.size < head.size) await frontier.append(leaves[frontier.size]);
      if ((await frontier.root()) !== head.root) faults.add(`version ${number}: the root over its ${head.size} receipts is another one`);
    }
  }
  return faults.count ? finding(name, faults, "") : members(history, frontier.size, leaves.map(hex));
}

/** Compare the leaves with the receipts: neither side may lack one. */
function members(history, size, leaves) {
  const faults = new Faults();
  const index = new Map(leaves.map((leaf, place) => [leaf, place]));
  const missing = leaves.slice(0, size).filter((leaf) => !history.receipts.has(leaf)).length;
  if (missing && !history.truncated) faults.add(`${missing} receipts of the log are missing`);
  const spans = new Map();
  let begin = 0;
  for (const number of history.numbers) {
    const head = history.versions.get(number).event.receipt_log;
    spans.set(number, [begin, head.size]);
    begin = head.size;
  }
  for (const receipt of history.finals.values()) {
    const span = spans.get(receipt.version);
    if (receipt.status !== "APPLIED" || span === undefined) continue;
    const place = index.get(receipt.leaf) ?? -1;
    if (place < span[0] || place >= span[1]) faults.add(`the receipt of ${receipt.requestId} is not in the log of version ${receipt.version}`);
  }
  if (faults.count || !missing) return finding("receipt log", faults, `${size} receipts; the tree head of every version matches`);
  return unproved("receipt log", `tree heads agree; ${missing} of ${size} receipts have expired from the log`);
}

/** Check the proofs of a part alone: each applied receipt is in the log of its version. */
export function inclusion(history) {
  const faults = new Faults();
  const places = new Set();
  for (const { text, version, holds } of history.proofs) {
    const receipt = history.receipts.get(text);
    if (receipt === undefined) faults.add(`a proof for version ${version} is of a receipt that is not here`);
    else if (!holds) faults.add(`the receipt at ${receipt.place} is not in the log of version ${version}`);
    places.add(`${text} ${version}`);
  }
  const applied = [...history.finals.values()].filter((one) => one.status === "APPLIED");
  const missing = applied.filter((one) => !places.has(`${one.leaf} ${one.version}`));
  if (missing.length && !faults.count) {
    return unproved("receipt log", `${missing.length} receipts have no proof here, the first that of ${missing[0].requestId}`);
  }
  return finding("receipt log", faults, `inclusion proofs that hold: ${places.size}`);
}

// -- what was seen before -------------------------------------------------------------------------

/** Return a checkpoint from VERSION:DIGEST or from the contents of a checkpoint file; null if empty. */
export function parseSeen(text) {
  const trimmed = text.trim();
  if (trimmed === "") return null;
  const short = /^(?:newest:\s*)?(\d{1,15}):([0-9a-f]{64})$/.exec(trimmed);
  if (short) return { modelId: null, version: Number(short[1]), digest: short[2], receiptLog: null };
  try {
    const { model_id: modelId = "", version, digest, receipt_log: log = null } = parseStrictly(trimmed);
    const whole = log === null || (isCount(log.size) && /^[0-9a-f]{64}$/.test(log.root));
    if (isCount(version) && /^[0-9a-f]{64}$/.test(digest) && whole) return { modelId, version, digest, receiptLog: log };
  } catch {
    // said below
  }
  throw new Error("What was seen before is neither VERSION:DIGEST nor the contents of a checkpoint file.");
}

async function checkpoint(history, seen) {
  const faults = new Faults();
  const fact = history.versions.get(seen.version);
  const tip = history.tip;
  if (fact === undefined || tip === null) {
    const end = tip === null ? "is empty" : `ends with version ${tip.event.version}`;
    faults.add(`version ${seen.version} was seen before, but history ${end}: it was rolled back`);
  } else if (fact.event.digest !== seen.digest) {
    faults.add(`version ${seen.version} was seen before with digest ${seen.digest.slice(0, 12)}, but now has ${fact.event.digest.slice(0, 12)}: history was rewritten`);
  } else if (seen.receiptLog !== null && !(await grown(history, seen.receiptLog))) {
    faults.add("the receipt log does not extend the one that was seen before");
  }
  return finding("checkpoint", faults, `continues from version ${seen.version} as seen before`);
}

/** Whoever has all leaves needs no proof: the first ones must have the root that was seen. */
async function grown(history, seen) {
  const head = history.tip.event.receipt_log;
  const leaves = head === null ? [] : leavesOf(history);
  if (head === null || seen.size > head.size || head.size > leaves.length) return false;
  return (await rootOf(leaves, seen.size)) === seen.root && (await rootOf(leaves, head.size)) === head.root;
}
