/** Requests of other institutions at this node's engine are recorded, and requests of the node’s institution are not. */
import { expect, test } from 'vitest';
import { PeerAccounts, peerOfProvider } from '../../../agent/ingress/peer-accounts.ts';
import { type IngressUsage, ingressUsageSchema, TOKENS_MAX, usageName } from '../../../shared/usage/ingress-usage.ts';
import { NO_USAGE } from '../../../shared/wire/reported-usage.ts';

const AT = Date.parse('2026-11-20T16:20:00Z');
const USAGE = { ...NO_USAGE, prompt: 7, completion: 5, complete: true };
const TIMINGS = { status: 200, firstMs: 20, totalMs: 1_000 };

function accounts(gpus = 4, load: { running: number; waiting: number } | undefined = undefined) {
  const records: IngressUsage[] = [];
  const clock = { now: 0 };
  let names = 0;
  const made = new PeerAccounts({
    gpus: () => gpus,
    load: () => load,
    session: () => 'a'.repeat(26),
    onUsage: (record) => records.push(record),
    now: () => clock.now,
    wall: () => AT,
    newName: () => String(++names).padStart(16, 'n'),
  });
  return { made, records, clock };
}

const open = (receipt: string, requestId = 'r1') => ({ requestId, attempt: 1, receipt, endpoint: 1, streaming: true });
const receipt = (facts: string) => `nonce.sealed\n${facts}\norg/m`;

test('an attempt of a peer’s gateway is recorded under the peer and the project of its receipt', () => {
  const { made, records, clock } = accounts();
  const attempt = made.of(() => 'psi').begin(open(receipt('+\tproj_1')));
  clock.now = 1_000;
  attempt.report(USAGE, TIMINGS);
  attempt.end();
  expect(records).toEqual([
    {
      request_id: 'r1',
      attempt: 1,
      model: 'org/m',
      session: 'a'.repeat(26),
      prompt_tokens: 7,
      completion_tokens: 5,
      cached_tokens: 0,
      reasoning_tokens: 0,
      estimated: false,
      complete: true,
      aborted: false,
      answer_bytes: 0,
      course: { endpoint: 1, streamed: true, status: 200, first_ms: 20, total_ms: 1_000 },
      peer: { name: 'psi', project: 'proj_1', serving: 'nnnnnnnnnnnnnnn1', gpu_ms: 4_000 },
      at: AT,
    },
  ]);
  expect(ingressUsageSchema.parse(records[0])).toEqual(records[0]);
});

test('the own institution leaves no record, and shares the GPUs', () => {
  const { made, records, clock } = accounts();
  const own = made.of(() => undefined).begin(open(receipt('+')));
  const peer = made.of(() => 'psi').begin(open(receipt('+')));
  clock.now = 1_000;
  own.report(USAGE, TIMINGS);
  own.end();
  clock.now = 1_500;
  peer.report(USAGE, TIMINGS);
  peer.end();
  expect(records.map(({ peer: of }) => of?.gpu_ms)).toEqual([4 * (500 + 500)]);
});

test('a peer that is named later is recorded from then on', () => {
  const { made, records } = accounts();
  let name: string | undefined;
  const account = made.of(() => name);
  account.begin(open(receipt('+'))).report(USAGE, TIMINGS);
  name = 'psi';
  account.begin(open(receipt('+'))).report(USAGE, TIMINGS);
  expect(records.map(({ peer }) => peer?.name)).toEqual(['psi']);
});

test('a request that must leave no record leaves counts without its id, model, project and time', () => {
  const { made, records, clock } = accounts();
  const attempt = made.of(() => 'psi').begin(open(receipt('-'), 'secret-id'));
  clock.now = 500;
  attempt.report(USAGE, TIMINGS);
  const [record, ...more] = records;
  expect([record?.at, more]).toEqual([Date.parse('2026-11-20T16:00:00Z'), []]);
  expect(record).toMatchObject({
    prompt_tokens: 7,
    completion_tokens: 5,
    model: '',
    peer: { name: 'psi', gpu_ms: 2_000, untracked: true },
  });
  expect(record?.course).toBeUndefined();
  expect(JSON.stringify(record)).not.toMatch(/secret-id|org\/m|proj/);
  expect(ingressUsageSchema.parse(record)).toEqual(record);
});

test('a tokenization leaves no record, and neither does an untracked request of the own institution', () => {
  const { made, records } = accounts();
  made
    .of(() => 'psi')
    .begin(open(''))
    .report(USAGE, TIMINGS);
  made
    .of(() => undefined)
    .begin(open(receipt('-')))
    .report(USAGE, TIMINGS);
  expect(records).toEqual([]);
});

test('the receipt of another agent’s ingress is the model', () => {
  const { made, records } = accounts();
  made
    .of(() => peerOfProvider('lab@psi'))
    .begin(open('org/m'))
    .report(USAGE, TIMINGS);
  expect(records).toMatchObject([{ model: 'org/m', peer: { name: 'psi' } }]);
  expect(peerOfProvider('lab')).toBeUndefined();
});

test('while requests wait at the engine a peer gets its share, and otherwise what is free', () => {
  const load = { running: 3, waiting: 0 };
  const { made } = accounts(1, load);
  const psi = made.of(() => 'psi');
  made.setAllowances({ psi: { share: 0.5 } });
  const running = [1, 2, 3].map(() => psi.begin(open(receipt('+'))));
  expect(psi.refusal(open(receipt('+')))).toBeUndefined();
  load.waiting = 1;
  expect(psi.refusal(open(receipt('+')))).toEqual({ code: 'overloaded', message: 'psi has its share of this node' });
  for (const other of ['eth', undefined]) expect(made.of(() => other).refusal(open(receipt('+')))).toBeUndefined();
  running[0]?.end();
  running[0]?.end();
  expect(psi.refusal(open(receipt('+')))?.code).toBe('overloaded');
  running[1]?.end();
  expect(psi.refusal(open(receipt('+')))).toBeUndefined();
  running[2]?.end();
  made.setAllowances({ psi: { share: 0 } });
  expect(psi.refusal(open(receipt('+')))).toBeUndefined();
});

test('while requests wait a peer yields to institutions of a higher priority at the node, and to no other', () => {
  const load = { running: 1, waiting: 1 };
  const { made } = accounts(1, load);
  const [psi, eth, own] = ['psi', 'eth', undefined].map((name) => made.of(() => name));
  const refused = (account = psi) => account?.refusal(open(receipt('+')));
  made.setAllowances({ psi: { priority: -2 }, eth: { priority: -1 } });
  // The waiting request is not of a higher priority.
  psi?.begin(open(receipt('+')));
  expect(refused()).toBeUndefined();
  const higher = eth?.begin(open(receipt('+')));
  expect(refused()).toEqual({ code: 'overloaded', message: 'psi waits for institutions with a higher priority' });
  expect([refused(eth), refused(own)]).toEqual([undefined, undefined]);
  const ours = own?.begin(open(receipt('+')));
  expect(refused(eth)?.code).toBe('overloaded');
  higher?.end();
  expect(refused()?.code).toBe('overloaded');
  ours?.end();
  expect(refused()).toBeUndefined();
  // An institution without a priority has the same one as ours.
  made.of(() => 'cscs').begin(open(receipt('+')));
  expect(refused(eth)?.code).toBe('overloaded');
  load.waiting = 0;
  expect(refused()).toBeUndefined();
});

test('a project of a peer gets its share, and other projects of the peer are not refused', () => {
  const { made } = accounts(1, { running: 4, waiting: 1 });
  const psi = made.of(() => 'psi');
  made.setAllowances({ psi: { project_shares: { proj_1: 0.4 } } });
  const of = (project: string) => open(receipt(`+\t${project}`));
  const running = [psi.begin(of('proj_1')), psi.begin(of('proj_1')), psi.begin(of('proj_2'))];
  expect(psi.refusal(of('proj_1'))).toEqual({
    code: 'overloaded',
    message: 'a project of psi has its share of this node',
  });
  for (const facts of ['proj_2', 'constructor', '__proto__']) expect(psi.refusal(of(facts))).toBeUndefined();
  expect(psi.refusal(open(receipt('-')))).toBeUndefined();
  running[0]?.end();
  expect(psi.refusal(of('proj_1'))).toBeUndefined();
});

test('a peer or its project that has reached a monthly limit is refused with the limit, and no other', () => {
  const { made } = accounts();
  const psi = made.of(() => 'psi');
  made.setAllowances({ psi: { projects: { proj_1: 'tokens_per_month' } } });
  expect(psi.refusal(open(receipt('+\tproj_1')))).toEqual({
    code: 'over_quota',
    message: 'psi has reached its limit tokens_per_month',
  });
  for (const facts of ['+\tproj_2', '+', '-', '+\tconstructor', '+\t__proto__'])
    expect([facts, psi.refusal(open(receipt(facts)))]).toEqual([facts, undefined]);
  made.setAllowances({ psi: { over: 'gpu_seconds_per_month' } });
  expect(psi.refusal(open(receipt('-')))?.code).toBe('over_quota');
  expect(made.of(() => 'eth').refusal(open(receipt('+')))).toBeUndefined();
  made.setAllowances({});
  expect(psi.refusal(open(receipt('+')))).toBeUndefined();
});

test('a peer that uses an id twice is recorded twice, and no record is too large for a gateway', () => {
  const { made, records } = accounts(Number.MAX_SAFE_INTEGER);
  const account = made.of(() => 'psi');
  for (const requestId of ['same', 'same', 'x'.repeat(9_999)]) {
    const attempt = account.begin(
      open(receipt(`+\t${'p'.repeat(999)}`).replace('org/m', 'm'.repeat(9_999)), requestId),
    );
    attempt.report({ ...USAGE, completion: Number.MAX_SAFE_INTEGER }, TIMINGS);
    attempt.end();
  }
  expect(new Set(records.map(usageName)).size).toBe(3);
  for (const record of records) expect(ingressUsageSchema.parse(record)).toEqual(record);
  expect(records[2]?.completion_tokens).toBe(TOKENS_MAX);
});
