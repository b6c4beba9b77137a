// Merkle trees of RFC 9162, section 2.1: tree heads from leaves, and consistency.

import { concat, hex, sha256 } from "./bytes.js";

const LEAF = Uint8Array.of(0);
const NODE = Uint8Array.of(1);

export function leafHash(entry) {
  return sha256(concat(LEAF, entry));
}

function nodeHash(left, right) {
  return sha256(concat(NODE, left, right));
}

/** A log as its writer needs it: its size, and the roots of its full subtrees. */
export class Frontier {
  size = 0;
  peaks = [];

  async append(leaf) {
    let hashed = leaf;
    for (let full = this.size; full & 1; full >>>= 1) hashed = await nodeHash(this.peaks.pop(), hashed);
    this.peaks.push(hashed);
    this.size += 1;
  }

  async root() {
    if (this.peaks.length === 0) return hex(await sha256(new Uint8Array()));
    let root = this.peaks.at(-1);
    for (let i = this.peaks.length - 2; i >= 0; i -= 1) root = await nodeHash(this.peaks[i], root);
    return hex(root);
  }
}

/** Return the root over the first leaves. */
export async function rootOf(leaves, size) {
  const frontier = new Frontier();
  for (let i = 0; i < size; i += 1) await frontier.append(leaves[i]);
  return frontier.root();
}

/** Whether a path shows that a leaf is entry `index` of the tree of a head (RFC 9162, 2.1.3.2). */
export async function verifyInclusion(leaf, index, path, { size, root }) {
  if (index >= size) return false;
  let [node, last, computed] = [BigInt(index), BigInt(size) - 1n, leaf];
  for (const sibling of path) {
    if (last === 0n) return false;
    if (node & 1n || node === last) {
      computed = await nodeHash(sibling, computed);
      while (node && !(node & 1n)) [node, last] = [node >> 1n, last >> 1n];
    } else {
      computed = await nodeHash(computed, sibling);
    }
    [node, last] = [node >> 1n, last >> 1n];
  }
  return last === 0n && hex(computed) === root;
}
