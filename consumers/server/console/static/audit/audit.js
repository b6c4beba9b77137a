// One audit of an exported file: what `lethe audit --bundle` checks, in a browser.

import { fromBase64 } from "./bytes.js";
import { read } from "./bundle.js";
import { findings, parseSeen, verdictOf } from "./checks.js";
import { History } from "./history.js";
import { TrustedKeys, keysIn } from "./signatures.js";

const TOGETHER = 256; // records that are hashed and verified at a time

/** Return {history, header, findings, verdict}; throws Unreadable if the file is not judged at all. */
export async function audit(file, { trust = "", seen = "", progress = () => {} } = {}) {
  const named = keysIn(trust);
  const before = parseSeen(seen);
  let history = null;
  let header = null;
  let waiting = [];
  let done = 0;
  const add = async () => {
    for (const prepared of await Promise.all(waiting.map((record) => history.prepare(record)))) history.add(prepared);
    done += waiting.length;
    waiting = [];
    await progress(done);
  };
  for await (const item of read(file)) {
    if (item.header) {
      header = item.header;
      if ((before?.modelId ?? header.modelId) !== header.modelId) throw new Error(`What was seen before is of another model than ${header.modelId}.`);
      const keys = named.length ? await TrustedKeys.of(named) : await namedBy(header);
      history = new History(header.modelId, keys, header.truncated);
    } else if (item.record) {
      waiting.push(item.record);
      if (waiting.length === TOGETHER) await add();
    } else {
      history.addLeaves(item.leaves);
    }
  }
  await add();
  history.finish();
  const found = await findings(history, { trusted: named.length > 0, seen: before });
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
