import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { Refusal, canonical, digest } from './digest.js';

const vectors = JSON.parse(readFileSync(new URL('../../docs/digest-vectors.json', import.meta.url), 'utf8'));

function bodyOf(vector) {
  if (vector.body !== undefined) return Buffer.from(vector.body, 'utf8');
  if (vector.body_base64 !== undefined) return Buffer.from(vector.body_base64, 'base64');
  if (vector.body_repeat !== undefined) return Buffer.from(vector.body_repeat.map(([text, times]) => text.repeat(times)).join(''), 'utf8');
  return null;
}

test('accepted vectors', () => {
  assert.ok(vectors.accepted.length >= 200);
  for (const vector of vectors.accepted) {
    const body = bodyOf(vector);
    const options = vector.omit === undefined ? {} : { omit: vector.omit };
    assert.equal(digest(vector.operation, vector.path, body, options), vector.digest, vector.name);
    if (vector.canonical_hex !== undefined && body !== null) {
      assert.equal(Buffer.from(canonical(body, options)).toString('hex'), vector.canonical_hex, vector.name);
    }
    if (typeof vector.body === 'string') {
      assert.equal(digest(vector.operation, vector.path, vector.body, options), vector.digest, vector.name);
    }
  }
});

test('refused vectors', () => {
  assert.ok(vectors.refused.length >= 100);
  for (const vector of vectors.refused) {
    assert.throws(
      () => digest('submitTask', '/v1/tasks', bodyOf(vector)),
      (error) => error instanceof Refusal && error.code === vector.code,
      `${vector.name}: want ${vector.code}`,
    );
  }
});

test('a text with half a surrogate pair', () => {
  assert.throws(() => digest('submitTask', '/v1/tasks', '"\ud800"'), Refusal);
});
