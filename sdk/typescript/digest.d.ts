/** A body that Orbit refuses. Its code is one of the codes in docs/digest.md. */
export class Refusal extends Error {
  constructor(code: string, offset: number);
  readonly code: string;
  /** In bytes, near the fault. */
  readonly offset: number;
}

export interface Options {
  /** A member of the outermost object that the digest leaves out. */
  omit?: string;
}

/**
 * The digest of a request, as 64 hexadecimal digits. Throws a Refusal for a body that Orbit refuses.
 *
 * @param operation the operationId
 * @param path the path with its ids filled in, without a query
 * @param body null if the request has none
 */
export function digest(operation: string, path: string, body: Uint8Array | string | null, options?: Options): string;

/** The canonical encoding of one JSON text. Throws a Refusal for a text that Orbit refuses. */
export function canonical(body: Uint8Array | string, options?: Options): Uint8Array;
