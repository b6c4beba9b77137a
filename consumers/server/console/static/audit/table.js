// A table of rows, as CSV: decimal numbers, read to the nearest float64.

const LARGEST = 256 << 20; // bytes: browsers hold no text that is much longer
const CELL = /("(?:[^"]|"")*"|[^",\r\n]*)(,|\r?\n|$)/y;
const DECIMAL = /^[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?$/;

/** What is wrong with a table: it is not compared. */
export class BadTable extends Error {}

/** Return the number that a text is in decimal digits, or null. */
export function decimal(text) {
  const value = DECIMAL.test(text.trim()) ? Number(text) : NaN;
  return Number.isFinite(value) ? value : null;
}

/** Yield the rows of a CSV file: lists of texts. Empty lines are left out. */
function* rowsOf(text) {
  let row = [];
  for (CELL.lastIndex = 0; CELL.lastIndex < text.length || row.length;) {
    const at = CELL.lastIndex;
    const found = CELL.exec(text);
    if (found === null) throw new BadTable(`is not CSV with commas, near “${text.slice(at, at + 20)}”`);
    const [, cell, end] = found;
    row.push(cell.startsWith('"') ? cell.slice(1, -1).replaceAll('""', '"') : cell);
    if (end === ",") continue;
    if (row.length > 1 || row[0] !== "") yield row;
    row = [];
  }
}

/** Return columns of numbers in the order of `names`, of a file whose first row names them; `id` may be empty. */
export async function readTable(file, names, id, progress) {
  if (file.size > LARGEST) throw new BadTable(`has more than ${LARGEST >> 20} MiB, which is too much for this page`);
  const rows = rowsOf(await file.text());
  const header = rows.next().value ?? [];
  const places = [...names, ...(id ? [id] : [])].map((name) => {
    const place = header.indexOf(name);
    if (place < 0) throw new BadTable(`has no column ${name}; its first row must name the columns`);
    if (header.lastIndexOf(name) !== place) throw new BadTable(`has two columns ${name}`);
    return place;
  });
  const columns = names.map(() => []);
  const seen = new Set();
  for (const row of rows) {
    const count = columns[0].length + 1;
    const name = id ? `row ${count} (${row[places.at(-1)]})` : `row ${count}`;
    if (row.length !== header.length) throw new BadTable(`${name} has ${row.length} cells, and the first row ${header.length}`);
    if (id && seen.size === seen.add(row[places.at(-1)]).size) throw new BadTable(`${name}: an earlier row has the same id`);
    columns.forEach((column, k) => {
      const value = decimal(row[places[k]]);
      if (value === null) throw new BadTable(`${name}, column ${names[k]}: “${row[places[k]].slice(0, 40)}” is not a number that float64 can hold`);
      column.push(value);
    });
    if (count % 4096 === 0) await progress(`${count.toLocaleString("en")} rows read…`);
  }
  return columns;
}
