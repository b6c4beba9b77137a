// A linear model retrained in whole numbers, and each coefficient rounded once (docs/exact.md).

const WORK = 1.5e12; // a few minutes: of ordinary numbers, 200 coefficients
const view = new DataView(new ArrayBuffer(8));
const INFINITE = 0x7ffn << 52n; // the bits of infinity

/** A table would take too long. */
export class TooLarge extends Error {}

/** Return a finite number's 64 bits; of a negative one, those of its size, negated: neighbours differ by 1. */
export function place(value) {
  view.setFloat64(0, Math.abs(value));
  return value < 0 ? -view.getBigUint64(0) : view.getBigUint64(0);
}

/** Return the number as `mantissa` times 2^`exponent`, and `unit`: of the largest 2^unit that divides it. */
function parts(value) {
  view.setFloat64(0, Math.abs(value));
  const [top, low] = [view.getUint32(0), view.getUint32(4)];
  const high = top < 0x100000 ? top : (top & 0xfffff) | 0x100000;
  const exponent = Math.max(top >>> 20, 1) - 1075;
  const zeros = (bits) => 31 - Math.clz32(bits & -bits);
  const size = high * 0x100000000 + low;
  return { mantissa: value < 0 ? -size : size, exponent, unit: exponent + (low ? zeros(low) : 32 + zeros(high)) };
}

/** Return value / 2^unit, a whole number. */
function scaled(value, unit) {
  const { mantissa, exponent } = parts(value);
  return mantissa === 0 ? 0n : BigInt(mantissa) << BigInt(exponent - unit); // shifted to the right, only zeros are lost
}

/** Return the power of 2 that divides all numbers of a column, and the bits of the largest quotient. */
function unitOf(column) {
  let [unit, top] = [Infinity, -Infinity];
  for (const value of column) {
    if (value === 0) continue;
    const one = parts(value);
    unit = Math.min(unit, one.unit);
    top = Math.max(top, one.exponent + 53);
  }
  return unit === Infinity ? { unit: 0, bits: 0 } : { unit, bits: top - unit };
}

const bitsOf = (whole) => whole.toString(16).length * 4;

/** Return the float64 nearest to numerator / denominator * 2^exponent; of two that are equally near, the even one. */
function nearest(numerator, denominator, exponent) {
  if (numerator === 0n) return 0;
  const size = numerator < 0n ? -numerator : numerator;
  let unit = Math.max(bitsOf(size) - bitsOf(denominator) + exponent - 58, -1074);
  let [above, below] = [size, denominator];
  const spread = BigInt(unit - exponent);
  if (spread < 0n) above <<= -spread;
  else below <<= spread;
  for (; above / below >= 1n << 53n; unit += 1) below <<= 1n;
  let digits = above / below;
  const twice = 2n * (above - digits * below);
  if (twice > below || (twice === below && digits & 1n)) digits += 1n;
  const bits = (BigInt(unit + 1074) << 52n) + digits; // a carry goes into the exponent
  if (bits >= INFINITE) throw new RangeError("a coefficient of the refit is beyond float64");
  view.setBigUint64(0, bits);
  return numerator < 0n ? -view.getFloat64(0) : view.getFloat64(0);
}

/**
 * Return sum_i w_i z_ij z_ik for j < d and k >= j, in the units of columns and weights: whole numbers below
 * 2^(slot - 1). A row is packed into one, z_j + z_(j+1) 2^slot + ..., whose product with z_j has all those of j.
 */
async function sums(columns, units, weights, weightUnit, d, slot, progress) {
  const shift = BigInt(slot);
  const packed = Array(d).fill(0n);
  for (let i = 0; i < weights.length; i += 1) {
    const weight = scaled(weights[i], weightUnit);
    let row = 0n;
    for (let k = columns.length - 1; k >= 0; k -= 1) {
      const value = scaled(columns[k][i], units[k]);
      row = (row << shift) + value;
      if (k < d && value !== 0n) packed[k] += weight * value * row;
    }
    if (i % 1024 === 1023) await progress(`${(i + 1).toLocaleString("en")} rows added up…`);
  }
  return packed.map((rest, j) => columns.slice(j).map(() => {
    const sum = BigInt.asIntN(slot, rest);
    rest = (rest - sum) >> shift;
    return sum;
  }));
}

/**
 * Return the minimiser of sum_i w_i |y_i - x_i theta|^2 + sum_j penalty_j theta_j^2, rounded: of each feature
 * a list with a number per target; null if there is no single one. `features` and `targets` are lists of columns.
 */
export async function minimiser(features, targets, weights, penalty, progress = () => {}) {
  const columns = [...features, ...targets];
  const [n, d] = [weights.length, features.length];
  const found = columns.map(unitOf);
  const units = found.map((one) => one.unit);
  const { unit: weightUnit, bits } = unitOf(weights);
  const slot = 2 * Math.max(...found.map((one) => one.bits)) + bits + n.toString(2).length + 1;
  // theta_j, in units of its column, solves a system of whole numbers once this has the unit of the finest penalty.
  const own = penalty.map((value, j) => 2 * units[j] + weightUnit);
  const finer = Math.max(0, ...penalty.map((value, j) => (value ? own[j] - parts(value).unit : 0)));
  if ((n + 4 * d * d) * d * d * (slot + finer) > WORK) {
    throw new TooLarge(`${n.toLocaleString("en")} rows and ${d} coefficients, with sums of ${slot + finer} bits, are too many for this page`);
  }
  const A = (await sums(columns, units, weights, weightUnit, d, slot, progress)).map((row) => row.map((sum) => sum << BigInt(finer)));
  penalty.forEach((value, j) => { A[j][0] += scaled(value, own[j] - finer); });
  // Bareiss: what is left below row k is symmetric, and made of determinants, so that each division comes out even.
  let before = 1n;
  for (let k = 0; k < d; k += 1) {
    const [pivot] = A[k];
    if (pivot === 0n) return null;
    for (let i = k + 1; i < d; i += 1) {
      const factor = A[k][i - k];
      A[i] = A[i].map((value, j) => (pivot * value - factor * A[k][i - k + j]) / before);
    }
    before = pivot;
    await progress(`${k + 1} of ${d} coefficients eliminated…`);
  }
  const theta = features.map(() => []);
  targets.forEach((_, t) => {
    const solved = Array(d); // times the determinant
    for (let j = d - 1; j >= 0; j -= 1) {
      let rest = before * A[j][d - j + t];
      for (let k = j + 1; k < d; k += 1) rest -= A[j][k - j] * solved[k];
      solved[j] = rest / A[j][0];
      theta[j].push(nearest(solved[j], before, units[d + t] - units[j]));
    }
  });
  return theta;
}
