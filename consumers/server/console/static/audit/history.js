// What an audit keeps of a published history, record by record; checks.js judges it.

import { Broken, hex } from "./bytes.js";
import { STORED } from "./bundle.js";
import { MODELS, RECEIPTS, TYPES, VERSIONS, isCovered, parametersDigest, parametersOf, receiptOf, versionOf } from "./events.js";
import { leafHash, verifyInclusion } from "./merkle.js";
import { HEADER } from "./signatures.js";

const SHOWN = 3;
const CANDIDATES = 8;
const CONFLICT = "REQUEST_ID_CONFLICT";
export const COMMON = ["digest", "prev_digest", "parameters_digest", "generation", "method", "kind", "status"];

/** Whether an event is of the same version as another, in all that parameters and versions have in common. */
export const alike = (one, other) => [...COMMON, "created_at"].every((field) => one[field] === other[field]);

/** The faults of a check: the first few, and how many there are. */
export class Faults {
  shown = [];
  count = 0;

  add(text) {
    this.count += 1;
    if (this.shown.length < SHOWN) this.shown.push(text);
  }

  addAll(other) {
    for (const text of other.shown) this.add(text);
    this.count += other.count - other.shown.length;
  }

  toString() {
    const more = this.count - this.shown.length;
    return this.shown.join("; ") + (more ? `; and ${more} more` : "");
  }
}

/** The signatures on one topic: how many by each key, and what is wrong. */
export class Signatures {
  byKey = new Map();
  numbers = new Set();
  signed = new Set();
  unsigned = new Set();
  faults = new Faults();

  add(signature, number, leaf, place) {
    if (signature.key === null) {
      this.unsigned.add(leaf);
    } else if (signature.valid === false) {
      this.faults.add(`${place}: ${signature.detail}`);
    } else {
      this.byKey.set(signature.key, (this.byKey.get(signature.key) ?? 0) + 1);
      if (!signature.valid) return;
      this.numbers.add(number);
      this.signed.add(leaf);
    }
  }
}

/** Return who signed a record: checked if there are keys. */
export async function signatureOf(keys, type, record) {
  if (keys !== null) return keys.judge(type, record.value, record.headers);
  const named = record.headers.some(([name]) => name.toLowerCase() === HEADER);
  return { key: named ? "?" : null, valid: null, detail: named ? "signed, by whom is not known" : "not signed" };
}

export class History {
  faults = new Faults();
  forks = new Faults();
  disorder = new Faults();
  parametersFaults = new Faults();
  parametersFacts = new Map();
  versions = new Map();
  receipts = new Map();
  finals = new Map();
  contradictions = new Map();
  signatures = { [VERSIONS]: new Signatures(), [RECEIPTS]: new Signatures(), [MODELS]: new Signatures() };
  records = { [VERSIONS]: 0, [RECEIPTS]: 0, [MODELS]: 0 };
  leaves = [];
  proofs = [];
  recovered = 0;
  #candidates = new Map();
  #last = new Map();
  #newest = new Map();

  /** `partial`: it has some requests alone, and proofs in place of the leaves. */
  constructor(modelId, keys, { truncated = false, partial = false } = {}) {
    this.modelId = modelId;
    this.keys = keys;
    this.truncated = truncated;
    this.partial = partial;
  }

  get numbers() {
    return [...this.versions.keys()].sort((a, b) => a - b);
  }

  get tip() {
    return this.versions.size ? this.versions.get(this.numbers.at(-1)) : null;
  }

  /** The oldest and the newest version that a trusted key signed, or null. */
  get signed() {
    const numbers = this.numbers.filter((number) => this.signatures[VERSIONS].numbers.has(number));
    return numbers.length ? [numbers[0], numbers.at(-1)] : null;
  }

  /** The newest parameters: those that the newest version names, if they were read. */
  get parameters() {
    const candidates = [...this.#candidates.values()];
    return candidates.find((one) => one.digest === this.tip?.event.digest) ?? candidates[0] ?? null;
  }

  /** Whether there are other parameters for the same version. */
  hasOthers(event) {
    return [...this.#candidates.values()].some((one) => !alike(one, event));
  }

  precedesModel(receipt) {
    const first = this.versions.get(0);
    const early = first !== undefined && receipt.completedAt < Date.parse(first.event.created_at);
    return receipt.code === "UNKNOWN_MODEL" || (receipt.status === "REJECTED" && early);
  }

  /** Return what takes time and needs nothing before it: leaf hash, signature, parsed event. */
  async prepare(record) {
    if (!Object.hasOwn(TYPES, record.topic)) return { record };
    const place = placeOf(record);
    const prepared = { record, place, leaf: null, signature: null, event: null, broken: null };
    prepared.leaf = hex(await leafHash(record.value));
    prepared.signature = await signatureOf(this.keys, TYPES[record.topic], record);
    try {
      const read = { [VERSIONS]: versionOf, [RECEIPTS]: receiptOf, [MODELS]: parametersOf }[record.topic];
      prepared.event = await read(record, this.modelId, place);
      if (record.topic === MODELS && prepared.event.theta !== null) prepared.digest = await parametersDigest(prepared.event);
    } catch (error) {
      if (!(error instanceof Broken)) throw error;
      prepared.broken = error.message;
    }
    return prepared;
  }

  /** Add a prepared record; records are added in the order of the file. */
  add({ record, place, leaf, signature, event, broken, digest }) {
    if (!Object.hasOwn(TYPES, record.topic)) {
      this.faults.add(`a record of topic ${record.topic.slice(0, 60)} is not part of a model's history`);
      return;
    }
    this.records[record.topic] += 1;
    this.#checkPlace(record);
    if (broken !== null) {
      this.faults.add(broken);
      return;
    }
    const number = {
      [VERSIONS]: () => this.#addVersion(record, event, place, signature),
      [RECEIPTS]: () => this.#addReceipt(record, event, place, leaf),
      [MODELS]: () => this.#addParameters(event, place, digest, leaf),
    }[record.topic]();
    this.signatures[record.topic].add(signature, number, leaf, place);
  }

  addLeaves(leaves) {
    for (const leaf of leaves) this.leaves.push(leaf);
  }

  addProof(proof) {
    this.proofs.push({ ...proof, text: hex(proof.leaf), holds: false });
  }

  /** Return the leaf hashes, in hexadecimal, of the receipts that the log of a version is known to have. */
  covered(number) {
    if (this.partial) return new Set(this.proofs.filter((one) => one.version <= number && one.holds).map((one) => one.text));
    return new Set(this.leaves.slice(0, this.versions.get(number).event.receipt_log?.size ?? 0).map(hex));
  }

  /** Judge proofs, and choose the answers of requests that were sent before the model was there, too. */
  async finish() {
    for (const proof of this.proofs) {
      const head = this.versions.get(proof.version)?.event.receipt_log ?? null;
      proof.holds = head !== null && (await verifyInclusion(proof.leaf, proof.index, proof.path, head));
    }
    for (const [request, receipts] of this.contradictions) {
      this.finals.set(request, receipts.find((one) => !this.precedesModel(one)) ?? receipts[0]);
    }
  }

  #checkPlace(record) {
    if (record.partition === STORED) {
      this.recovered += record.topic === RECEIPTS;
      return;
    }
    const partition = `${record.topic}/${record.partition}`;
    const last = this.#last.get(partition) ?? -1;
    if (record.offset <= last) this.disorder.add(`${partition}: offset ${record.offset} follows offset ${last}`);
    this.#last.set(partition, Math.max(record.offset, last));
  }

  #addVersion(record, event, place, signature) {
    const number = event.version;
    const known = this.versions.get(number);
    if (known !== undefined) {
      if (known.event.digest !== event.digest) {
        this.forks.add(`there are two different versions ${number}, ${known.event.digest.slice(0, 12)} and ${event.digest.slice(0, 12)}: history was forked`);
      }
      return number;
    }
    const newest = this.#newest.get(record.partition) ?? -1;
    if (number < newest) this.disorder.add(`version ${number} comes after version ${newest}`);
    this.#newest.set(record.partition, Math.max(number, newest));
    this.versions.set(number, { event, place, signature });
    return number;
  }

  #addReceipt(record, event, place, leaf) {
    const number = event.version ?? -1;
    if (this.receipts.has(leaf)) return number;
    const receipt = {
      requestId: event.request_id, status: event.status, code: event.code, version: event.version,
      generation: event.generation, rowsDeleted: event.rows_deleted, rowsInserted: event.rows_inserted,
      completedAt: Date.parse(event.completed_at), leaf, partition: record.partition, place,
    };
    this.receipts.set(leaf, receipt);
    if (event.status === "DEFERRED" || event.code === CONFLICT) return number;
    const earlier = this.finals.get(event.request_id);
    if (earlier === undefined) this.finals.set(event.request_id, receipt);
    else if (this.contradictions.has(event.request_id)) this.contradictions.get(event.request_id).push(receipt);
    else this.contradictions.set(event.request_id, [earlier, receipt]);
    return number;
  }

  #addParameters(event, place, digest, leaf) {
    if (event.theta !== null && digest !== event.parameters_digest) {
      this.parametersFaults.add(`the parameters of version ${event.version} at ${place} do not match their own digest`);
    }
    const identity = Object.fromEntries([...COMMON, "version", "created_at"].map((field) => [field, event[field]]));
    this.parametersFacts.set(leaf, { ...identity, covered: isCovered(event) });
    const newest = this.#candidates.values().next().value;
    if (newest === undefined || event.version > newest.version) this.#candidates = new Map([[leaf, event]]);
    else if (event.version === newest.version && this.#candidates.size < CANDIDATES) this.#candidates.set(leaf, event);
    return event.version;
  }
}

export function placeOf(record) {
  if (record.partition === STORED) return `${record.topic} (kept by the state)`;
  return `${record.topic}/${record.partition} at offset ${record.offset}`;
}
