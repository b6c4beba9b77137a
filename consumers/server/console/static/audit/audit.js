// One audit of an exported file: what `lethe audit --bundle` checks, in a browser.

import { fromBase64 } from "./bytes.js";
import { read } from "./bundle.js";
import { findings, parseSeen, verdictOf } from "./checks.js";
import { Evidence, erasureFindings } from "./erasure.js";
import { History } from "./history.js";
import { retraining } from "./retraining.js";
import { TrustedKeys, keysIn } from "./signatures.js";

const TOGETHER = 256; // records that are hashed and verified at a time

/**
 * Return {header, history, findings, verdict}, with `evidence` in place of `history` for the evidence of
 * an erasure; throws Unreadable if the file is not judged at all. `table`: rows to retrain on (retraining.js).
 */
export async function audit(file, { trust = "", seen = "", table = null, progress = () => {} } = {}) {
  const named = keysIn(trust);
  const before = parseSeen(seen);
  const trusted = named.length > 0;
  const items = read(file);
  const { header } = (await items.next()).value ?? {};
  const keys = trusted ? await TrustedKeys.of(named) : await namedBy(header);
  if (header.erasureId !== null) {
    if (before !== null) throw new Error("What was seen before is of a model, and the file is of an erasure.");
    if (table !== null) throw new Error("A table is of a model's rows, and the file is of an erasure.");
    const evidence = new Evidence(header.erasureId, keys);
    for await (const item of items) await evidence.add(item);
    const found = await erasureFindings(evidence, { trusted });
    return { evidence, header, findings: found, verdict: verdictOf(found) };
  }
  if ((before?.modelId ?? header.modelId) !== header.modelId) throw new Error(`What was seen before is of another model than ${header.modelId}.`);
  const history = new History(header.modelId, keys, { truncated: header.truncated });
  let waiting = [];
  let done = 0;
  const add = async () => {
    for (const prepared of await Promise.all(waiting.map((record) => history.prepare(record)))) history.add(prepared);
    done += waiting.length;
    waiting = [];
    await progress(`${done.toLocaleString("en")} records checked…`);
  };
  for await (const item of items) {
    if (item.record) {
      waiting.push(item.record);
      if (waiting.length === TOGETHER) await add();
    } else {
      history.addLeaves(item.leaves);
    }
  }
  await add();
  await history.finish();
  const found = await findings(history, { trusted, seen: before });
  if (table !== null) found.push(await retraining(history, header, table, progress));
  return { history, header, findings: found, verdict: verdictOf(found) };
}

/** Return the keys that a file itself names: they show only that it is consistent. */
async function namedBy(header) {
  const keys = header.publicKeys.map(fromBase64);
  if (!keys.length || keys.some((key) => key === null || key.length !== 32)) return null;
  try {
    return await TrustedKeys.of(keys);
  } catch {
    return null;
  }
}
