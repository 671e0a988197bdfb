/**
 * JSON whose numbers keep their digits. JSON.parse makes a double of every number: 3889108265204450030 would come out as
 * 3889108265204450000, and 0.1000 as 0.1. Orbit keeps every digit of payloads, results and progress; these two functions
 * let a program keep them too, on any Node from 18 on.
 */

/** A number whose text a JavaScript number cannot give back. */
export class Exact {
  constructor(readonly text: string) {
    if (!/^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?$/.test(text)) {
      throw new SyntaxError(`not a JSON number: ${text}`);
    }
  }
}

/** A string, passed over whole so that digits in it stay, or a number. */
const stringOrNumber = /"[^"\\]*(?:\\.[^"\\]*)*"|-?[0-9][0-9.eE+-]*/g;

/** Half a surrogate pair begins no string that comes from Orbit, which refuses such text: it marks numbers. */
const mark = '\\ud800';
const marked = '\ud800';

/**
 * Reads a JSON text. A number is a `number` where that writes the same text again, as it does for every integer of the
 * API itself, and an `Exact` everywhere else. Throws a SyntaxError for a text that is not JSON.
 *
 * The type is the caller's claim, as with JSON.parse. Members that the document leaves open (payload, result, progress)
 * are of type unknown in it.
 */
export function parse<T>(text: string): T {
  const quoted = text.replace(stringOrNumber, (token) => (token.startsWith('"') ? token : `"${mark}${token}"`));
  return JSON.parse(quoted, (name, value: unknown) => {
    if (name.startsWith(marked)) throw new SyntaxError(`a number cannot be a name: ${name.slice(marked.length)}`);
    if (typeof value !== 'string' || !value.startsWith(marked)) return value;
    const exact = new Exact(value.slice(marked.length));
    return String(Number(exact.text)) === exact.text ? Number(exact.text) : exact;
  }) as T;
}

/** Writes what JSON.stringify would write of data, and each Exact with its own digits. */
export function stringify(value: unknown): string {
  if (value instanceof Exact) return value.text;
  if (Array.isArray(value)) return `[${value.map((item) => stringify(item ?? null)).join(',')}]`;
  if (typeof value === 'object' && value !== null) {
    if ('toJSON' in value && typeof value.toJSON === 'function') return stringify(value.toJSON());
    const members = Object.entries(value).filter(([, member]) => member !== undefined);
    return `{${members.map(([name, member]) => `${JSON.stringify(name)}:${stringify(member)}`).join(',')}}`;
  }
  return JSON.stringify(value);
}
