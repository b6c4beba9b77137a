// The evidence of one erasure: its combined receipt, and what each model answered, together.

import { Broken, concat, encode, hex, hmacSha256 } from "./bytes.js";
import { FAILED, NOT_PROVED, OK, chain, finding, inclusion, passedOver, receipts, signatures, unproved, unvouched } from "./checks.js";
import { ERASURE_RECEIPTS, ERASURE_TYPE, erasureOf } from "./events.js";
import { Faults, History, Signatures, placeOf, signatureOf } from "./history.js";
import { leafHash } from "./merkle.js";

const UNANSWERED = ["AWAITED", "DEFERRED"];
const HOLDS_NOTHING = ["UNKNOWN_ROWS", "MODEL_UNREGISTERED"];

/** Everything that a file has of one erasure. */
export class Evidence {
  faults = new Faults();
  receipts = new Map();
  signatures = new Signatures();
  models = new Map();
  openings = [];
  #model = null;

  constructor(erasureId, keys) {
    this.erasureId = erasureId;
    this.keys = keys;
  }

  /** The combined receipt, or null. */
  get receipt() {
    return this.receipts.size ? [...this.receipts.values()][0] : null;
  }

  /** Add what a line holds; in the order of the file. */
  async add({ part, opening, record, proof }) {
    if (part !== undefined) this.#begin(part);
    else if (opening !== undefined) this.openings.push(opening);
    else if (record?.topic === ERASURE_RECEIPTS) await this.#add(record);
    else if (this.#model === null) this.faults.add("something of a model stands before any model is named");
    else if (proof !== undefined) this.#model.addProof(proof);
    else this.#model.add(await this.#model.prepare(record));
  }

  #begin(modelId) {
    if (this.models.has(modelId)) this.faults.add(`there are two parts of model ${modelId}`);
    else this.models.set(modelId, new History(modelId, this.keys, { partial: true }));
    this.#model = this.models.get(modelId);
  }

  async #add(record) {
    const place = placeOf(record);
    try {
      const receipt = erasureOf(record, this.erasureId, place);
      const leaf = hex(await leafHash(record.value));
      if (!this.receipts.has(leaf)) this.receipts.set(leaf, receipt);
      this.signatures.add(await signatureOf(this.keys, ERASURE_TYPE, record), -1, leaf, place);
    } catch (error) {
      if (!(error instanceof Broken)) throw error;
      this.faults.add(error.message);
    }
  }

  /** Whether it opens the commitment in the combined receipt. */
  async opens({ subjectId, salt }) {
    if (this.receipt === null) return false;
    const made = await hmacSha256(salt, packed([this.receipt.namespace ?? "", subjectId]));
    return hex(made) === this.receipt.subject_commitment;
  }
}

/** Return texts so that no two lists of them have the same bytes: each after its length. */
function packed(parts) {
  return concat(...parts.flatMap((part) => {
    const bytes = encode(part);
    const length = new DataView(new ArrayBuffer(4));
    length.setUint32(0, bytes.length);
    return [new Uint8Array(length.buffer), bytes];
  }));
}

/** Return the findings. `trusted`: the keys were named by whoever asks. */
export async function erasureFindings(evidence, { trusted }) {
  const faults = new Faults();
  faults.addAll(evidence.faults);
  for (const history of evidence.models.values()) {
    await history.finish();
    faults.addAll(history.faults);
  }
  return [
    finding("records", faults, `a combined receipt, and answers of ${evidence.models.size} models`),
    combined(evidence),
    compared(evidence),
    ofAll("chain", evidence.models, chain),
    signaturesOf(evidence, trusted),
    ofAll("receipts", evidence.models, receipts),
    ofAll("receipt log", evidence.models, inclusion),
    await subject(evidence),
  ];
}

/** Return what a check says of all models: the worst of it. */
function ofAll(check, models, judge) {
  const found = [...models].map(([model, history]) => [model, judge(history)]);
  for (const result of [FAILED, NOT_PROVED, OK]) {
    const said = new Faults();
    for (const [model, one] of found) if (one.result === result) said.add(`${model}: ${one.detail}`);
    if (said.count) return { check, result, detail: String(said) };
  }
  return { check, result: OK, detail: "no model was asked" };
}

/** Check that there is one combined receipt, consistent in itself, and that it says complete. */
function combined({ receipts: all, receipt }) {
  const check = "erasure";
  const faults = receipt === null ? new Faults() : contradictions(receipt);
  if (receipt === null) faults.add("there is no combined receipt");
  if (all.size > 1) faults.add(`there are ${all.size} different combined receipts`);
  if (faults.count) return finding(check, faults, "");
  if (receipt.op === "lift") return unproved(check, "it lifts a suppression, and erases nobody");
  if (receipt.status === "COMPLETE") {
    const rows = `COMPLETE: ${receipt.rows_deleted} rows deleted in ${receipt.models.length} models`;
    return finding(check, faults, receipt.unknown ? "COMPLETE: no model knew the person, and nothing was deleted" : rows);
  }
  const open = receipt.models.filter((one) => !isGone(one)).map((one) => one.model_id);
  const names = [...new Set([...open, ...receipt.awaited])].sort().slice(0, 3).join(", ");
  return unproved(check, `${receipt.status}: it does not say that the person is gone${names && ` (${names})`}`);
}

/** Return how a combined receipt contradicts itself. */
function contradictions(receipt) {
  const { status, models, awaited } = receipt;
  const faults = new Faults();
  if (new Set(models.map((one) => one.model_id)).size < models.length) faults.add("it names a model twice");
  if (receipt.complete !== (status === "COMPLETE")) faults.add(`it is ${status}, and says complete: ${receipt.complete}`);
  if ((status !== "PENDING") !== (receipt.completed_at !== null)) faults.add(`it is ${status}, and completed_at says otherwise`);
  if (sum(models) !== BigInt(receipt.rows_deleted)) faults.add(`its models deleted another number of rows than ${receipt.rows_deleted}`);
  for (const one of models) {
    if (!one.request_ids.length && one.status !== "NOT_COVERED") faults.add(`${one.model_id} is ${one.status}, and was asked nothing`);
  }
  const waiting = models.some((one) => UNANSWERED.includes(one.status)) || awaited.length > 0;
  if (["COMPLETE", "INCOMPLETE"].includes(status) && waiting) faults.add(`it is ${status}, and awaits answers`);
  const gone = models.every(isGone);
  if ((status === "COMPLETE" && !gone) || (status === "INCOMPLETE" && gone)) faults.add(`it is ${status}, and the answers of its models say otherwise`);
  if (receipt.unknown && models.some((one) => one.request_ids.length)) faults.add("no model is said to know the person, and some were asked");
  return faults;
}

/** Whether a model holds no row of the person, by its status. */
function isGone({ status, code }) {
  return status === "APPLIED" || status === "ALREADY_APPLIED" || (status === "REJECTED" && HOLDS_NOTHING.includes(code));
}

/** Return the rows that several have deleted; exact, whatever they say. */
function sum(several) {
  return several.reduce((total, one) => total + BigInt(one.rows_deleted ?? one.rowsDeleted), 0n);
}

/** Compare the combined receipt with the models' own. */
function compared({ models, receipt }) {
  const check = "answers";
  const faults = new Faults();
  const missing = new Faults();
  const said = new Map((receipt?.models ?? []).map((one) => [one.model_id, one]));
  for (const model of models.keys()) if (!said.has(model)) faults.add(`${model} is not in the combined receipt`);
  for (const [model, one] of said) {
    const known = models.get(model)?.finals ?? new Map();
    for (const request of known.keys()) {
      if (!one.request_ids.includes(request)) faults.add(`${model} has a receipt of request ${request}, which it was not asked`);
    }
    if (UNANSWERED.includes(one.status) || one.status === "NOT_COVERED") continue;
    const own = one.request_ids.filter((request) => known.has(request)).map((request) => known.get(request));
    if (own.length < one.request_ids.length) {
      missing.add(`${model}: ${one.request_ids.length - own.length} receipts are not here`);
    } else if (one.code !== "REQUEST_ID_CONFLICT" && own.length) {
      faults.addAll(differences(one, own));
      const last = own.reduce((latest, fact) => Math.max(latest, fact.completedAt), -Infinity);
      if (receipt.completed_at !== null && Date.parse(receipt.completed_at) < last) faults.add(`${model} answered after the combined receipt`);
    }
  }
  if (missing.count && !faults.count) return unproved(check, String(missing));
  return finding(check, faults, "the combined receipt says what the models' own receipts say");
}

/** Return where a combined receipt says something else of a model than its own receipts. */
function differences(one, own) {
  const faults = new Faults();
  const worst = own.reduce((least, fact) => Math.min(least, rank(fact)), Infinity);
  const decisive = own.filter((fact) => rank(fact) === worst);
  const versions = own.filter((fact) => fact.status === "APPLIED" && fact.version !== null).map((fact) => fact.version);
  const newest = versions.length ? versions.reduce((most, version) => Math.max(most, version)) : null;
  const rows = sum(own);
  if (!decisive.some((fact) => fact.status === one.status && fact.code === one.code)) {
    faults.add(`${one.model_id} is ${one.status} there, and ${decisive[0].status} by its own receipts`);
  }
  if (BigInt(one.rows_deleted) !== rows) faults.add(`${one.model_id} deleted ${one.rows_deleted} rows there, and ${rows} by them`);
  if (one.version !== newest) faults.add(`${one.model_id} names version ${one.version} there, and its receipts ${newest}`);
  return faults;
}

/** Order answers: of several, the first one matters. */
function rank({ status, code }) {
  if (status === "REJECTED") return HOLDS_NOTHING.includes(code) ? 3 : 0;
  return status === "APPLIED" ? 1 : 2;
}

function signaturesOf(evidence, trusted) {
  const topics = [...evidence.models.values()].flatMap((history) => Object.values(history.signatures));
  const alone = (faults) => {
    const { signed, unsigned } = evidence.signatures;
    const parts = [...evidence.models].map(([model, history]) => [model, unvouched(history, faults)]).filter(([, what]) => what);
    const both = [...unsigned].some((leaf) => !signed.has(leaf)) ? ["the combined receipt"] : [];
    return [...both, ...parts.map(([model, what]) => `${what} of ${model}`)].join("; ");
  };
  return signatures([evidence.signatures, ...topics], alone, trusted);
}

/** Open the commitment to the person, if the file has what opens it. */
async function subject(evidence) {
  const check = "subject";
  if (!evidence.openings.length) return passedOver(check, "this copy names nobody: only the person's own copy does");
  const faults = new Faults();
  for (const one of evidence.openings) {
    if (!(await evidence.opens(one))) faults.add(`the combined receipt is not of ${one.subjectId}`);
  }
  return finding(check, faults, `the erasure is of ${evidence.openings[0].subjectId}`);
}
