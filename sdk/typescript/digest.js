// @ts-check
/**
 * The digest of what a request means, as docs/digest.md describes it. Plain ES module for Node 18 and later.
 *
 * Bytes are held as strings of which each character is one byte ("latin1"): they compare and join as bytes do.
 */
import { createHash } from 'node:crypto';

const VERSION = 'orbit.digest.v1';
const MAX_DEPTH = 100;
const MAX_DIGITS = 1000;

/** A body that Orbit refuses. Its code is one of the codes in docs/digest.md. */
export class Refusal extends Error {
  /**
   * @param {string} code
   * @param {number} offset in bytes
   */
  constructor(code, offset) {
    super(`${code} at byte ${offset}`);
    this.name = 'Refusal';
    this.code = code;
    this.offset = offset;
  }
}

/**
 * The digest of a request, as 64 hexadecimal digits.
 *
 * @param {string} operation the operationId
 * @param {string} path the path with its ids filled in, without a query
 * @param {Uint8Array | string | null} body null if the request has none
 * @param {{ omit?: string }} [options] omit: a member of the outermost object that the digest leaves out
 * @returns {string}
 * @throws {Refusal}
 */
export function digest(operation, path, body, options = {}) {
  let array = encodeText(toBytes(VERSION)) + encodeText(toBytes(operation)) + encodeText(toBytes(path));
  if (body !== null) array += encode(body, options);
  return createHash('sha256').update(`[${array}]`, 'latin1').digest('hex');
}

/**
 * The canonical encoding of one JSON text.
 *
 * @param {Uint8Array | string} body
 * @param {{ omit?: string }} [options] as for digest
 * @returns {Uint8Array}
 * @throws {Refusal}
 */
export function canonical(body, options = {}) {
  return Buffer.from(encode(body, options), 'latin1');
}

/**
 * @param {Uint8Array | string} body
 * @param {{ omit?: string }} options
 */
function encode(body, options) {
  const bytes = typeof body === 'string' ? toBytes(body) : Buffer.from(body).toString('latin1');
  const omit = options.omit === undefined ? null : toBytes(options.omit);
  return new Reader(bytes).document(omit);
}

/** @param {string} text */
function toBytes(text) {
  if (/\p{Surrogate}/u.test(text)) throw new Refusal('lone_surrogate', 0);
  return Buffer.from(text, 'utf8').toString('latin1');
}

/** @param {string} bytes */
function encodeText(bytes) {
  return `s${bytes.length}:${bytes}`;
}

/** @param {string} bytes */
function isUTF8(bytes) {
  try {
    new TextDecoder('utf-8', { fatal: true }).decode(Buffer.from(bytes, 'latin1'));
    return true;
  } catch {
    return false;
  }
}

const SPACE = /[ \t\n\r]*/y;
const WORD = /true|false|null/y;
const NUMBER = /(-?)(0|[1-9][0-9]*)(?:\.([0-9]+))?(?:[eE]([-+]?)([0-9]+))?/y;
const PLAIN = /[^"\\\x00-\x1f]*/y;
const ESCAPE = /\\(?:(["\\/bfnrt])|u([0-9a-fA-F]{4}))/y;
const CONTROLS = /** @type {Record<string, string>} */ ({ b: '\b', f: '\f', n: '\n', r: '\r', t: '\t' });

class Reader {
  /** @param {string} bytes */
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
  }

  /** @param {string | null} omit */
  document(omit) {
    if (this.bytes.startsWith('\xef\xbb\xbf')) throw new Refusal('byte_order_mark', 0);
    const value = this.value(1, omit);
    if (this.peek() !== '') this.fail('invalid_json');
    return value;
  }

  /**
   * @param {string} code
   * @returns {never}
   */
  fail(code) {
    throw new Refusal(code, this.at);
  }

  /**
   * Takes what the expression matches here, and nothing if it does not match.
   * @param {RegExp} expression sticky
   */
  take(expression) {
    expression.lastIndex = this.at;
    const match = expression.exec(this.bytes);
    if (match !== null) this.at += match[0].length;
    return match;
  }

  /** The next byte that is not white space, '' at the end. */
  peek() {
    this.take(SPACE);
    return this.bytes.charAt(this.at);
  }

  /** @param {string} byte */
  takes(byte) {
    if (this.peek() !== byte) return false;
    this.at++;
    return true;
  }

  /**
   * @param {number} level of a container that begins here
   * @param {string | null} [omit]
   * @returns {string}
   */
  value(level, omit = null) {
    const byte = this.peek();
    if (byte === '{' || byte === '[') {
      if (level > MAX_DEPTH) this.fail('too_deep');
      this.at++;
      return byte === '{' ? this.object(level, omit) : this.array(level);
    }
    if (byte === '"') return encodeText(this.text());
    const word = this.take(WORD);
    if (word !== null) return word[0].charAt(0);
    return this.number();
  }

  /** @param {number} level */
  array(level) {
    let inside = '';
    if (this.takes(']')) return '[]';
    do inside += this.value(level + 1);
    while (this.takes(','));
    if (!this.takes(']')) this.fail('invalid_json');
    return `[${inside}]`;
  }

  /**
   * @param {number} level
   * @param {string | null} omit
   */
  object(level, omit) {
    /** @type {Map<string, string>} */
    const members = new Map();
    if (this.takes('}')) return '{}';
    do {
      if (this.peek() !== '"') this.fail('invalid_json');
      const name = this.text();
      if (!this.takes(':')) this.fail('invalid_json');
      const value = this.value(level + 1);
      if (members.has(name)) this.fail('duplicate_key');
      members.set(name, value);
    } while (this.takes(','));
    if (!this.takes('}')) this.fail('invalid_json');
    if (omit !== null) members.delete(omit);
    const names = [...members.keys()].sort((a, b) => (a < b ? -1 : 1));
    return `{${names.map((name) => encodeText(name) + members.get(name)).join('')}}`;
  }

  /** The bytes of a string's text, escapes resolved. */
  text() {
    this.at++;
    let text = '';
    let lone = false;
    for (;;) {
      text += /** @type {RegExpExecArray} */ (this.take(PLAIN))[0];
      if (this.bytes.charAt(this.at) === '"') break;
      const unit = this.escape();
      if (unit < 0xd800 || unit > 0xdfff) {
        text += toBytes(String.fromCharCode(unit));
        continue;
      }
      const before = this.at;
      const low = unit < 0xdc00 && this.bytes.startsWith('\\u', this.at) ? this.escape() : 0;
      if (low >= 0xdc00 && low <= 0xdfff) {
        text += toBytes(String.fromCharCode(unit, low));
      } else {
        lone = true;
        this.at = before;
      }
    }
    this.at++;
    if (!isUTF8(text)) this.fail('invalid_utf8');
    if (lone) this.fail('lone_surrogate');
    return text;
  }

  /** The UTF-16 unit that an escape stands for. */
  escape() {
    const match = this.take(ESCAPE);
    if (match === null) this.fail('invalid_json');
    if (match[2] !== undefined) return parseInt(match[2], 16);
    return (CONTROLS[match[1]] ?? match[1]).charCodeAt(0);
  }

  number() {
    const match = this.take(NUMBER);
    if (match === null) this.fail('invalid_json');
    const [, minus, integer, fraction = '', exponentSign = '', exponent = ''] = match;
    if (integer.length + fraction.length + exponent.length > MAX_DIGITS) this.fail('number_too_long');
    const power = BigInt(exponent) * (exponentSign === '-' ? -1n : 1n) - BigInt(fraction.length);
    const written = (integer + fraction).replace(/^0+/, '');
    if (written === '') {
      if (power > 308n) this.fail('number_out_of_range');
      return 'd0e0;';
    }
    const digits = written.replace(/0+$/, '');
    const zeros = written.length - digits.length;
    const point = power + BigInt(written.length);
    const largest = digits === '17976931348623157' && zeros === 0;
    if (!belowLimit(digits, point) && !(largest && point === 309n)) this.fail('number_out_of_range');
    if (!belowLimit(integer, BigInt(integer.length))) this.fail('number_out_of_range');
    return `d${minus}${digits}e${power + BigInt(zeros)};`;
  }
}

/**
 * Whether 0.d1d2d3… · 10^point is below 1.7976931348623 · 10^308; the first digit is not zero unless point is 1.
 *
 * @param {string} digits
 * @param {bigint} point
 */
function belowLimit(digits, point) {
  return point < 309n || (point === 309n && digits < '17976931348623');
}
