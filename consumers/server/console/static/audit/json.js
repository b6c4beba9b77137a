// JSON that can be read in one way only (evidence.py says why), and its canonical form (RFC 8785).

const DEPTH = 64;
const SPACE = /[ \t\n\r]*/y;
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const STRING = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;

class Parser {
  constructor(text) {
    this.text = text;
    this.at = 0;
    this.depth = 0;
  }

  fail(what) {
    throw new SyntaxError(`${what} at ${this.at}`);
  }

  match(pattern) {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text);
    if (found === null) return null;
    this.at = pattern.lastIndex;
    return found[0];
  }

  take(letter) {
    this.match(SPACE);
    if (this.text[this.at] !== letter) return false;
    this.at += 1;
    return true;
  }

  value() {
    this.match(SPACE);
    const letter = this.text[this.at];
    if (letter === "{") return this.nested(() => this.object());
    if (letter === "[") return this.nested(() => this.array());
    if (letter === '"') return this.string();
    for (const [word, value] of [["true", true], ["false", false], ["null", null]]) {
      if (this.text.startsWith(word, this.at)) {
        this.at += word.length;
        return value;
      }
    }
    return this.number();
  }

  nested(read) {
    this.depth += 1;
    if (this.depth > DEPTH) this.fail("nested too deep");
    this.at += 1;
    const value = read();
    this.depth -= 1;
    return value;
  }

  object() {
    const members = new Map();
    if (this.take("}")) return {};
    do {
      this.match(SPACE);
      const name = this.string();
      if (members.has(name)) this.fail("an object names a member twice");
      if (!this.take(":")) this.fail("a colon is missing");
      members.set(name, this.value());
    } while (this.take(","));
    if (!this.take("}")) this.fail("an object does not end");
    return Object.fromEntries(members);
  }

  array() {
    const values = [];
    if (this.take("]")) return values;
    do values.push(this.value());
    while (this.take(","));
    if (!this.take("]")) this.fail("a list does not end");
    return values;
  }

  string() {
    const found = this.match(STRING);
    if (found === null) this.fail("not a text");
    const text = JSON.parse(found);
    if (!text.isWellFormed()) this.fail("a text is not valid Unicode");
    return text;
  }

  number() {
    const found = this.match(NUMBER);
    if (found === null) this.fail("not a value");
    const number = Number(found);
    if (!Number.isFinite(number)) this.fail("a number is too large");
    if (!/^-?\d+$/.test(found)) return number;
    if (!Number.isSafeInteger(number)) this.fail("a whole number is too large");
    return number + 0; // -0 is 0; -0.0 is another number
  }
}

/** Parse JSON; throws SyntaxError if a member is named twice, or a number is not exact. */
export function parseStrictly(text) {
  const parser = new Parser(text);
  const value = parser.value();
  parser.match(SPACE);
  if (parser.at !== text.length) parser.fail("something follows the value");
  return value;
}

/** Return the canonical form of parsed JSON. Numbers are written as ECMAScript does, by RFC 8785. */
export function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value !== null && typeof value === "object") {
    const names = Object.keys(value).sort();
    return `{${names.map((name) => `${JSON.stringify(name)}:${canonical(value[name])}`).join(",")}}`;
  }
  return JSON.stringify(value);
}
