// The newest version against retraining on a table, bit for bit: `lethe verify --digest --data`.

import { FAILED, OK, passedOver } from "./checks.js";
import { parametersDigest } from "./events.js";
import { Faults } from "./history.js";
import { TooLarge, minimiser, place } from "./refit.js";
import { BadTable, decimal, readTable } from "./table.js";

const NAME = "retraining";

/** Return why parameters are never rounded to the last bit, or why they cannot be recomputed, or null. */
function unknown(history, header, ridge) {
  const event = history.parameters;
  const version = history.tip?.event;
  if (!version || event?.digest !== version.digest || history.parametersFaults.count) return "the newest version's parameters are missing";
  if (event.kind !== "linear") return "only a linear model has a minimiser in closed form";
  if (event.columns.length) return "preprocessing is part of the model";
  if ((version.certificate ?? null) !== null || header.certified) return "noise of its own is part of the parameters";
  if (ridge === null) return "the ridge strength is not known: give it";
  return null;
}

/** Compare with a table: `file`, its columns `id` and `weight`, and `ridge`; these may be empty. */
export async function retraining(history, header, { file, id, weight, ridge: given }, progress) {
  const ridge = given === "" ? header.ridge : decimal(given);
  if (given !== "" && (ridge === null || ridge < 0)) throw new BadTable(`The ridge strength “${given}” is not a number from 0 on.`);
  const why = unknown(history, header, ridge);
  if (why !== null) return passedOver(NAME, why);
  const { event: version } = history.tip;
  const event = history.parameters;
  try {
    const { columns, weights } = await weighted(event, file, id, weight, progress);
    const n = weights.length;
    if (n !== version.rows_live) {
      const detail = `${file.name} has ${n} rows, and version ${version.version} has ${version.rows_live} live rows: it is another table`;
      return { check: NAME, result: FAILED, detail };
    }
    const d = event.feature_names.length;
    const X = columns.slice(0, d);
    const penalty = Array(d).fill(ridge);
    if (event.fit_intercept) {
      X.push(Array(n).fill(1));
      penalty.push(version.status === "INTERCEPT_PENALISED" ? ridge : 0);
    }
    const y = columns.slice(d);
    const theta = n ? await minimiser(X, y, weights, penalty, progress) : X.map(() => y.map(() => 0));
    const source = given === "" ? ", as the exported file says" : "";
    return await verdictOn(event, version, theta, `${n} rows of ${file.name} (ridge ${ridge}${source})`);
  } catch (error) {
    if (error instanceof TooLarge) return passedOver(NAME, `${error.message}: \`lethe verify ${event.model_id} --digest --data FILE --id COLUMN\` has no such limit`);
    if (error instanceof BadTable || error instanceof RangeError) throw new BadTable(`${file.name}: ${error.message}`);
    throw error;
  }
}

async function weighted({ feature_names: features, target_names: targets }, file, id, weight, progress) {
  const columns = await readTable(file, [...features, ...targets, ...(weight ? [weight] : [])], id, progress);
  const weights = weight ? columns.pop() : Array(columns[0].length).fill(1);
  const negative = weights.findIndex((value) => value < 0);
  if (negative >= 0) throw new BadTable(`row ${negative + 1}, column ${weight}: a weight is below 0`);
  return { columns, weights };
}

/** Return the finding on parameters: those of a version, and `theta`, those of retraining. */
async function verdictOn(event, version, theta, rows) {
  const { feature_names: features, target_names: targets, fit_intercept: intercept } = event;
  if (theta === null) return { check: NAME, result: FAILED, detail: `${rows} have no single minimiser` };
  const refitted = { ...event, theta: theta.slice(0, features.length), intercept: intercept ? theta.at(-1) : null };
  if ((await parametersDigest(refitted)) === version.parameters_digest) {
    return { check: NAME, result: OK, detail: `retraining on ${rows} gives version ${version.version}, bit for bit` };
  }
  const published = event.theta === null ? [] : [...event.theta.flat(), ...(intercept ? [event.intercept].flat() : [])];
  const faults = new Faults();
  published.forEach((value, i) => {
    const [j, t] = [Math.floor(i / targets.length), i % targets.length];
    const between = place(value) - place(theta[j][t]);
    const off = between < 0n ? -between : between;
    const name = (features[j] ?? "intercept") + (targets.length > 1 ? ` of ${targets[t]}` : "");
    if (off) faults.add(`${name} by ${off.toLocaleString("en")} unit${off === 1n ? "" : "s"} in the last place`);
  });
  const detail = `version ${version.version} differs from retraining on ${rows}: ${faults.count ? faults : "its digest is another one"}`;
  if (version.error.kind === "rounded") return { check: NAME, result: FAILED, detail };
  const kind = `its error is \`${version.error.kind}\`, not \`rounded\`: \`lethe refresh ${event.model_id} --size rebuild\` publishes one that must not differ`;
  return passedOver(NAME, `${detail}; ${kind}`);
}
