/**
 * Drives tasks through a running Orbit with a client generated from its OpenAPI document, as submitter, worker and
 * reader, and fails at the first answer that is not what the document says.
 *
 * ORBIT_SERVER is the address of the server, ORBIT_KEY the key of a credential with all actions. It makes a queue of its
 * own and leaves it behind.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import createClient from 'openapi-fetch';

import { Exact, parse, stringify } from './exact.js';
import type { components, paths } from './orbit.js';

type Schemas = components['schemas'];

const payloadText = '{"id":3889108265204450030,"amount":0.1000,"balance":12345678901234567890.123456789012345678}';
const resultText = '{"seen":[3889108265204450030,0.1000,12345678901234567890.123456789012345678],"note":"0.1000"}';
const progressText = '{"done":0.1000,"of":12345678901234567890.123456789012345678}';

const client = createClient<paths>({
  baseUrl: setting('ORBIT_SERVER'),
  headers: { Authorization: `Bearer ${setting('ORBIT_KEY')}` },
  bodySerializer: stringify,
});

function setting(name: string): string {
  const value = process.env[name];
  if (value === undefined || value === '') throw new Error(`${name} is not set`);
  return value;
}

/** What every call of the client resolves to; T is string where the body was asked for as text. */
interface Reply<T> {
  data?: T;
  error?: Schemas['Problem'];
  response: Response;
}

/** The body of a reply that must have this status. */
function want<T>(status: number, { data, error, response }: Reply<T>): T {
  if (response.status !== status || data === undefined) {
    assert.fail(`${response.url}: ${response.status}, want ${status}: ${error?.code} ${error?.detail}`);
  }
  return data;
}

/** The problem of a reply that must have failed. A program decides by `code`; the other members are for people. */
function wantProblem(code: string, { error, response }: Reply<unknown>): Schemas['Problem'] {
  assert.equal(error?.code, code);
  assert.equal(error.status, response.status);
  assert.equal(response.headers.get('Content-Type'), 'application/problem+json');
  return error;
}

function only<T>(items: T[]): T {
  const [item, ...more] = items;
  if (item === undefined || more.length > 0) assert.fail(`${items.length} items, want one`);
  return item;
}

function newId(): string {
  return randomUUID().replaceAll('-', '');
}

/** The header of an Idempotency-Key. A program makes the key once for each thing it wants done, and repeats under it. */
function under(key: string) {
  return { params: { header: { 'Idempotency-Key': key } } };
}

async function createQueue(name: string): Promise<string> {
  const body = { name, lease_ms: 60_000, offer_timeout_ms: 60_000 };
  return want(201, await client.POST('/v1/queues', { ...under(newId()), body })).id;
}

/** The incarnation of a worker, sent with each of its calls. */
type Incarnation = Pick<Schemas['WorkerSession'], 'instance_id' | 'epoch'>;

async function openSession(queue: string): Promise<Incarnation> {
  const body = { worker_name: `typescript-${queue}`, instance_id: newId(), queues: [queue], types: ['count'], slots: 1 };
  const { instance_id, epoch } = want(200, await client.POST('/v1/worker-sessions', { body }));
  assert.equal(instance_id, body.instance_id);
  return { instance_id, epoch };
}

/** Submits the task, and again as after a lost reply: both give the same receipt, byte for byte. */
async function submit(queue: string): Promise<Schemas['AcceptanceReceipt']> {
  const request = { ...under(newId()), body: { queue, type: 'count', payload: parse(payloadText) }, parseAs: 'text' } as const;
  const first = await client.POST('/v1/tasks', request);
  const repeat = await client.POST('/v1/tasks', request);
  assert.equal(want(201, repeat), want(201, first));
  assert.equal(first.response.headers.get('Idempotency-Replayed'), null);
  assert.equal(repeat.response.headers.get('Idempotency-Replayed'), 'true');

  const other = await client.POST('/v1/tasks', { ...request, body: { ...request.body, payload: 1 } });
  assert.equal(wantProblem('idempotency_conflict', other).status, 422);
  return parse(want(201, first));
}

/** Claims one task, waiting for it. The text is read instead of the data, for its digits. */
async function claim(worker: Incarnation): Promise<Schemas['Offer']> {
  const body = { ...worker, claim_seq: 1, max: 1, wait_ms: 30_000 };
  const reply = await client.POST('/v1/claims', { body, parseAs: 'text' });
  return only(parse<Schemas['ClaimTasksResponse']>(want(200, reply)).offers);
}

async function work(worker: Incarnation, offer: Schemas['Offer']): Promise<Schemas['AttemptReceipt']> {
  const item = { attempt_id: offer.attempt_id, token: offer.token };

  const started = only(want(200, await client.POST('/v1/attempts:start', { body: { ...worker, items: [item] } })).items);
  assert.equal(started.status, 200);
  assert.equal(started.attempt?.state, 'running');

  const alive = { ...worker, items: [{ ...item, progress: parse(progressText) }] };
  const renewed = only(want(200, await client.POST('/v1/attempts:heartbeat', { body: alive })).items);
  assert.equal(renewed.status, 200);
  assert.equal(renewed.attempt?.cancel_requested, false);

  const ended = { ...worker, items: [{ ...item, outcome: 'succeeded' as const, result: parse(resultText) }] };
  const finished = only(want(200, await client.POST('/v1/attempts:finish', { body: ended })).items);
  assert.equal(finished.status, 200);
  assert.equal(finished.replayed, false);
  assert.equal(finished.receipt?.task_state, 'succeeded');

  const repeated = only(want(200, await client.POST('/v1/attempts:finish', { body: ended })).items);
  assert.equal(repeated.replayed, true);
  assert.deepEqual(repeated.receipt, finished.receipt);

  const late = only(want(200, await client.POST('/v1/attempts:start', { body: { ...worker, items: [item] } })).items);
  assert.notEqual(late.status, 200);
  assert.equal(late.problem?.status, late.status);
  return finished.receipt;
}

/** Reads what is left of a task that was done. */
async function read(taskId: string, receipt: Schemas['AttemptReceipt']): Promise<void> {
  const path = { task_id: taskId };
  const task = parse<Schemas['Task']>(want(200, await client.GET('/v1/tasks/{task_id}', { params: { path }, parseAs: 'text' })));
  assert.equal(task.state, 'succeeded');
  assert.equal(stringify(task.payload), payloadText);
  assert.equal(stringify(task.result), resultText);

  const listed = only(want(200, await client.GET('/v1/tasks/{task_id}/attempts', { params: { path } })).items);
  assert.equal(listed.id, receipt.attempt_id);
  assert.equal(listed.state, 'succeeded');

  const one = await client.GET('/v1/attempts/{attempt_id}', { params: { path: { attempt_id: listed.id } }, parseAs: 'text' });
  const attempt = parse<Schemas['Attempt']>(want(200, one));
  assert.deepEqual(attempt.receipt, receipt);
  assert.equal(stringify(attempt.result), resultText);
  assert.equal(stringify(attempt.progress), progressText);
}

/** Submits a batch with one bad item, whose neighbours it does not harm, and answers the tasks that were accepted. */
async function submitBatch(queue: string): Promise<string[]> {
  const items = [1, 2, 3, 4, 5].map((n) => ({ idempotency_key: newId(), queue, type: 'later', delay_ms: 3_600_000, payload: n }));
  const bad = { idempotency_key: newId(), queue: `no-${queue}`, type: 'later' };
  const body = { items: [...items.slice(0, 2), bad, ...items.slice(2)] };
  const results = want(200, await client.POST('/v1/tasks:batch', { body })).items;
  assert.deepEqual(results.map((result) => result.status), [201, 201, 404, 201, 201, 201]);
  assert.equal(results[2]?.problem?.code, 'not_found');
  return results.flatMap((result) => result.receipt?.task_id ?? []);
}

/** Every task of a queue, page by page, newest first. */
async function listTasks(queueId: string, limit: number): Promise<string[]> {
  const ids: string[] = [];
  let cursor: string | undefined;
  do {
    const query = { queue_id: queueId, limit, ...(cursor === undefined ? {} : { cursor }) };
    const page = want(200, await client.GET('/v1/tasks', { params: { query } }));
    assert.ok(page.items.length <= limit);
    ids.push(...page.items.map((task) => task.id));
    cursor = page.next_cursor;
  } while (cursor !== undefined);
  return ids;
}

async function cancel(taskId: string): Promise<void> {
  const params = { path: { task_id: taskId }, header: { 'Idempotency-Key': newId() } };
  const reply = await client.POST('/v1/tasks/{task_id}:cancel', { params, body: { reason: 'no longer wanted' } });
  assert.equal(want(200, reply).state, 'cancelled');
}

async function meetProblems(queue: string): Promise<void> {
  const path = { task_id: newId() };
  assert.equal(wantProblem('not_found', await client.GET('/v1/tasks/{task_id}', { params: { path } })).status, 404);

  const body = { queue, type: 'count', priority: 10 };
  const invalid = wantProblem('invalid_request', await client.POST('/v1/tasks', { ...under(newId()), body }));
  assert.equal(only(invalid.errors ?? []).pointer, '/priority');

  // @ts-expect-error: a task without a type does not compile.
  const mistyped = await client.POST('/v1/tasks', { ...under(newId()), body: { queue } });
  wantProblem('invalid_request', mistyped);

  const stranger = createClient<paths>({ baseUrl: setting('ORBIT_SERVER') });
  assert.equal(wantProblem('unauthenticated', await stranger.GET('/v1/credential')).status, 401);
}

/** What exact.ts says of itself. */
function checkExact(): void {
  for (const text of [payloadText, resultText, progressText, '[-0,1E5,1e-7,-1.50,0,12,"\\"1.0",{"1.0":"-"}]']) {
    assert.equal(stringify(parse(text)), text);
  }
  assert.deepEqual(parse('[1,0.5,1.0]'), [1, 0.5, new Exact('1.0')]);
  assert.equal(stringify({ at: new Date(0), none: undefined, list: [undefined] }), '{"at":"1970-01-01T00:00:00.000Z","list":[null]}');
  for (const text of ['[01]', '[1.]', '[+1]', '[1 2]', '["]', '[1-1]', '{1:2}']) {
    assert.throws(() => parse(text), SyntaxError, text);
  }
}

checkExact();
const queue = `counts-${newId()}`;
const queueId = await createQueue(queue);
const worker = await openSession(queue);

// The claim waits for the task.
const [offer, accepted] = await Promise.all([claim(worker), submit(queue)]);
assert.equal(offer.task_id, accepted.task_id);
assert.equal(stringify(offer.payload), payloadText);
const receipt = await work(worker, offer);
await read(accepted.task_id, receipt);

const later = await submitBatch(queue);
assert.deepEqual((await listTasks(queueId, 2)).sort(), [accepted.task_id, ...later].sort());
await cancel(later[0] ?? '');
await meetProblems(queue);
want(200, await client.POST('/v1/worker-sessions:close', { body: worker }));
console.log(`task ${accepted.task_id} is done: ${JSON.stringify(receipt)}`);
