import { existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect, it, vi } from 'vitest';
import { toIngressUsage } from '../../../agent/ingress/request-service.ts';
import { UsageDelivery } from '../../../agent/ingress/usage-delivery.ts';
import { UsageQueue } from '../../../agent/ingress/usage-queue.ts';
import type { UsageSender } from '../../../agent/tunnel/tunnel-types.ts';
import {
  type IngressUsage,
  ingressUsageSchema,
  parseUsageBatch,
  USAGE_BATCH_MAX,
} from '../../../shared/usage/ingress-usage.ts';
import { NO_USAGE } from '../../../shared/wire/reported-usage.ts';
import { ingressUsage as usedByIngress } from '../../support/ingress-usage.ts';
import { endAll, temporaryDirectory } from '../../support/processes.ts';

/** A full disk refuses new files, but renames and removes existing ones. */
const disk = vi.hoisted(() => ({ full: false }));
vi.mock('node:fs', async (original) => {
  const real = await original<typeof import('node:fs')>();
  const written: typeof real.writeFileSync = (file, data, options) => {
    if (disk.full) throw Object.assign(new Error('ENOSPC: no space left on device'), { code: 'ENOSPC' });
    real.writeFileSync(file, data, options);
  };
  return { ...real, writeFileSync: written };
});

afterEach(endAll);

const log = () => {};

const usage = (n: number, more: Partial<IngressUsage> = {}) => usedByIngress(n, { provider: 'lab', ...more });

const numbers = (count: number) => Array.from({ length: count }, (_, n) => usage(n));

/** A gateway that stores what it is sent, and acknowledges at the test's call. */
class Gateway implements UsageSender {
  readonly stored = new Map<string, IngressUsage>();
  readonly sent: { sequence: number; records: IngressUsage[] }[] = [];

  send(sequence: number, json: string): void {
    const records = parseUsageBatch(json);
    if (records === undefined) throw new Error(`no batch: ${json}`);
    this.sent.push({ sequence, records });
    for (const record of records) this.stored.set(`${record.request_id}/${record.attempt}`, record);
  }

  /** Acknowledges the last batch. */
  answer(delivery: UsageDelivery): void {
    const last = this.sent.at(-1);
    if (last !== undefined) delivery.stored(this, last.sequence);
  }
}

it('waits for a gateway and is delivered to it batch by batch, once each', () => {
  const queue = new UsageQueue({ directory: undefined, log });
  const delivery = new UsageDelivery(queue);
  queue.add(numbers(40));
  const gateway = new Gateway();
  delivery.connected(gateway);
  for (let n = 0; n < 3; n++) gateway.answer(delivery);
  expect(gateway.sent.map(({ records }) => records.length)).toEqual([USAGE_BATCH_MAX, USAGE_BATCH_MAX, 8]);
  expect([gateway.stored.size, queue.size]).toEqual([40, 0]);
  queue.add([usage(99)]);
  gateway.answer(delivery);
  expect([gateway.stored.size, queue.size]).toEqual([41, 0]);
});

it('a gateway that goes before it acknowledged leaves the batch to the next one', () => {
  const queue = new UsageQueue({ directory: undefined, log });
  const delivery = new UsageDelivery(queue);
  const [first, second] = [new Gateway(), new Gateway()];
  delivery.connected(first);
  queue.add(numbers(3));
  delivery.disconnected(first);
  first.answer(delivery); // too late: the records that it stored are sent again elsewhere
  expect(queue.size).toBe(3);
  delivery.connected(second);
  second.answer(delivery);
  expect([second.stored.size, queue.size]).toEqual([3, 0]);
});

it('an exact count replaces an estimate, also one that is on its way', () => {
  const queue = new UsageQueue({ directory: undefined, log });
  const delivery = new UsageDelivery(queue);
  const gateway = new Gateway();
  delivery.connected(gateway);
  queue.add([usage(1, { estimated: true, completion_tokens: 5 })]);
  queue.add([usage(1, { completion_tokens: 7 })]);
  gateway.answer(delivery);
  gateway.answer(delivery);
  expect(gateway.stored.get('request-1/1')?.completion_tokens).toBe(7);
  expect([gateway.sent.length, queue.size]).toEqual([2, 0]);
  queue.add([usage(2), usage(2, { estimated: true, completion_tokens: 1 })]);
  expect(queue.oldest(1)[0]?.completion_tokens).toBe(2);
  const course = { endpoint: 1, streamed: true, status: 200, first_ms: 10, total_ms: 50 };
  const exact = usage(3);
  queue.add([{ ...exact, estimated: true, course }]);
  queue.add([{ ...exact, at: exact.at + 60_000 }]);
  expect(queue.oldest(9)[1]).toEqual({ ...exact, course });
});

it('keeps no more than it may: the oldest go, and that is said once', () => {
  const lines: string[] = [];
  const queue = new UsageQueue({ directory: undefined, max: 10, log: (line) => lines.push(line) });
  queue.add(numbers(25));
  expect(queue.size).toBe(10);
  expect(queue.oldest(1)[0]?.request_id).toBe('request-15');
  expect(lines.length).toBe(1);
});

it('records of a former agent stay on the disk where this one cannot write, and go to the next', async () => {
  const directory = join(await temporaryDirectory(), 'usage');
  const former = new UsageQueue({ directory, log });
  former.open();
  former.add(numbers(5));
  former.close();
  const [file = ''] = readdirSync(directory);
  const left = readFileSync(join(directory, file));
  rmSync(join(directory, file));
  // A file of a process that was killed while it took over another's.
  writeFileSync(join(directory, `7-${hostname()}.json.4194999`), left);
  disk.full = true;
  const second = new UsageQueue({ directory, log });
  second.open();
  expect(second.size).toBe(5);
  disk.full = false;
  expect(readdirSync(directory)).toHaveLength(1);
  expect(readdirSync(directory).map((name) => readFileSync(join(directory, name), 'utf8'))).toEqual([String(left)]);
});

it('two agents of one number on one host, each in its container, keep their own files', async () => {
  const directory = join(await temporaryDirectory(), 'usage');
  const queues = [new UsageQueue({ directory, log }), new UsageQueue({ directory, log })];
  for (const queue of queues) {
    queue.open();
    queue.add(numbers(5));
    queue.close();
  }
  expect(readdirSync(directory)).toHaveLength(2);
  queues[0]?.stored(queues[0].oldest(10));
  queues[0]?.close();
  expect(readdirSync(directory)).toHaveLength(1);
});

it('what an agent could not deliver is taken over by the next one, and by one only', async () => {
  const directory = join(await temporaryDirectory(), 'usage');
  const former = new UsageQueue({ directory, log });
  former.open();
  former.add(numbers(5));
  former.close();
  const [file = ''] = readdirSync(directory);
  expect(statSync(join(directory, file)).mode & 0o777).toBe(0o600);
  // As if that process had ended: no process has this number.
  writeFileSync(join(directory, `4194999-${hostname()}.json`), readFileSync(join(directory, file)));
  writeFileSync(join(directory, `4194998-${hostname()}.json`), '[{"half":');
  former.stored(former.oldest(10));
  former.close();
  const next = new UsageQueue({ directory, log });
  next.open();
  const another = new UsageQueue({ directory, log });
  another.open();
  expect([next.size, another.size]).toEqual([5, 0]);
  next.stored(next.oldest(10));
  next.close();
  expect(existsSync(directory)).toBe(false);
});

it('records are saved although another agent has removed the empty directory', async () => {
  const directory = join(await temporaryDirectory(), 'usage');
  const [mine, other] = [new UsageQueue({ directory, log }), new UsageQueue({ directory, log })];
  mine.open();
  other.open();
  other.add(numbers(1));
  other.close();
  expect(readdirSync(directory)).toHaveLength(1);
  other.stored(other.oldest(1));
  other.close();
  expect(existsSync(directory)).toBe(false);
  mine.add(numbers(1));
  mine.close();
  expect(readdirSync(directory)).toHaveLength(1);
});

it('a directory that cannot be written costs nothing but the file', async () => {
  const directory = join(await temporaryDirectory(), 'usage');
  writeFileSync(directory, 'a file stands there');
  const queue = new UsageQueue({ directory, log });
  queue.open();
  queue.add(numbers(2));
  queue.close();
  expect(queue.size).toBe(2);
});

it('a message that is not a batch of records is not read as one', () => {
  expect(parseUsageBatch('{')).toBeUndefined();
  expect(parseUsageBatch('[]')).toBeUndefined();
  const good = usage(2);
  expect(parseUsageBatch(JSON.stringify([{ ...usage(1), prompt_tokens: -1 }, good]))).toEqual([good]);
  expect(parseUsageBatch(JSON.stringify([{ ...usage(1), session: 'x' }, 'y', null]))).toEqual([]);
  expect(parseUsageBatch(JSON.stringify(numbers(USAGE_BATCH_MAX + 1)))).toBeUndefined();
});

it('a node that says it computed more than there is cannot spoil the books', () => {
  const said = {
    ...NO_USAGE,
    completion: Number.MAX_SAFE_INTEGER,
    requestId: 'r',
    attempt: 1,
    session: 'a'.repeat(26),
    stream: 3,
    receipt: 'm',
    answerBytes: 2,
    at: 1_700_000_000_000,
    repeated: false,
    course: { endpoint: 1, streamed: true, status: 200, firstMs: 1.5, totalMs: 2.25 },
  };
  const record = toIngressUsage(said, 'lab@peer');
  expect(ingressUsageSchema.parse(record)).toMatchObject({ completion_tokens: 1e9, provider: 'lab@peer' });
  expect(ingressUsageSchema.parse(toIngressUsage(said, 'lab@No Such Name'))).not.toHaveProperty('provider');
});
