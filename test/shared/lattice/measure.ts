/**
 * `node --expose-gc test/shared/lattice/measure.ts` prints the costs of the registry's lattice on this machine, as
 * medians of several runs.
 */
import { nodeCrypto } from '../../../agent/host/node-crypto.ts';
import { RegistryReplica } from '../../../shared/lattice/registry-replica.ts';
import { encodeUpdate, type Update } from '../../../shared/lattice/registry-update.ts';
import { encodeDigest } from '../../../shared/lattice/replica-digest.ts';
import { institution, node } from './house.ts';

const lab = institution();
const gateway = lab.gateway();
const { issuer } = lab;
const fresh = () => new RegistryReplica({ crypto: nodeCrypto, accepts: () => true });

/** Milliseconds of this thread's own processor time: a busy machine changes them little. */
function timed(run: () => void): number {
  const start = process.threadCpuUsage();
  run();
  const { user, system } = process.threadCpuUsage(start);
  return (user + system) / 1000;
}

/** Milliseconds; the first run is a warm-up and does not count. */
function median(times: number, run: () => void): number {
  const all = Array.from({ length: times + 1 }, () => timed(run)).slice(1);
  return all.sort((a, b) => a - b)[Math.floor(times / 2)] ?? Number.NaN;
}

/** Milliseconds per run, from `count` runs: the clock of a thread has steps of some milliseconds. */
function each(count: number, run: () => void): number {
  const many = () => {
    for (let i = 0; i < count; i++) run();
  };
  return median(5, many) / count;
}

function row(what: string, value: number, unit: string): void {
  console.log(`${what.padEnd(62)} ${value < 10 ? value.toFixed(3) : value.toFixed(1)} ${unit}`);
}

function nodesOf(count: number) {
  return Array.from({ length: count }, (_, i) => node(gateway, { cluster: `cluster-${i % 4}` }));
}

function sizes(): void {
  const one = node(gateway);
  const full = one.says('SERVING', 7);
  const { ticket, payload, ...thin } = full;
  const left = { ...one.says('LEFT', 8), ...gateway.evict(one.session) };
  row('ticket', ticket?.length ?? 0, 'B');
  row('payload (one model, four like GPUs)', payload?.length ?? 0, 'B');
  row('update, full: ticket, record, payload', encodeUpdate(full).length, 'B');
  row('update, thin: record', encodeUpdate(thin).length, 'B');
  row('update, thin with payload', encodeUpdate({ ...thin, ...(payload && { payload }) }).length, 'B');
  row('update, eviction', encodeUpdate(gateway.evict(one.session)).length, 'B');
  row('update of a session that left and was evicted, full', encodeUpdate(left).length, 'B');
  row('update, floor', encodeUpdate(gateway.floor(1_795_000_000)).length, 'B');
}

function merge(replica: RegistryReplica, all: readonly Uint8Array[]): void {
  for (const bytes of all) replica.merge(bytes);
}

function load(replica: RegistryReplica, all: readonly Uint8Array[]): void {
  for (const bytes of all) replica.load(bytes);
}

function merging(): void {
  const nodes = nodesOf(1000);
  const posted = (update: Update) => encodeUpdate(update);
  const first = nodes.map((each) => posted(each.says('SERVING', 1)));

  row(
    'merge 1,000 full entries, new',
    median(5, () => merge(fresh(), first)),
    'ms',
  );
  const replica = fresh();
  merge(replica, first);
  row(
    'merge the same again',
    median(5, () => merge(replica, first)),
    'ms',
  );
  const second = Array.from({ length: 6 }, (_, round) =>
    nodes.map((each) => {
      const { ticket, payload, ...thin } = each.says('SERVING', 2 + round);
      return posted(thin);
    }),
  );
  let round = 0;
  row(
    'merge 1,000 thin records, each newer',
    median(5, () => merge(replica, second[round++] ?? [])),
    'ms',
  );
  const stored = replica.updates(issuer).map(posted);
  row(
    'load 1,000 full entries from the own store',
    median(5, () => load(fresh(), stored)),
    'ms',
  );
}

function comparing(): void {
  const replica = fresh();
  for (const each of nodesOf(1000)) replica.merge(each.says('SERVING'));
  const digest = replica.digest({ issuer });
  row('digest of 1,000 entries', encodeDigest(digest).length, 'B');
  row(
    'make and encode it',
    each(100, () => encodeDigest(replica.digest({ issuer }))),
    'ms',
  );
  row(
    'delta against an equal digest',
    each(300, () => replica.delta(digest)),
    'ms',
  );
  row('fingerprint', each(20_000, () => replica.fingerprint(issuer)) * 1000, 'µs');
  const sessions = [...replica.entries()].map((entry) => entry.session);
  let look = 0;
  row('look a session up', each(300_000, () => replica.get(sessions[look++ % sessions.length] ?? '')) * 1e6, 'ns');
  const walk = () => {
    let ready = 0;
    for (const entry of replica.entries()) if (entry.state === 'SERVING' && entry.payload !== undefined) ready++;
    return ready;
  };
  row('read 1,000 payloads for the first time', timed(walk), 'ms');
  row('walk 1,000 entries with their payloads afterwards', each(1000, walk) * 1000, 'µs');
}

/** Heap and buffers, after two collections with time between them for concurrent sweeping. */
async function held(): Promise<number> {
  for (let i = 0; i < 2; i++) {
    globalThis.gc?.();
    await new Promise((resolve) => setTimeout(resolve, 300));
  }
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return heapUsed + arrayBuffers;
}

async function memory(): Promise<void> {
  const count = 20_000;
  const updates = nodesOf(count).map((each) =>
    encodeUpdate({ ...each.says('LEFT', 2), ...gateway.evict(each.session) }),
  );
  const before = await held();
  const replica = fresh();
  load(replica, updates);
  row(`a tombstone in memory (of ${replica.size})`, ((await held()) - before) / updates.length, 'B');
  const floor = gateway.floor(1_795_000_000 + 30 * 86_400);
  row(
    `collect ${count} tombstones by a floor`,
    timed(() => replica.merge(floor)),
    'ms',
  );
}

function verifying(): void {
  const message = new Uint8Array(100);
  const signature = gateway.signer.sign(message);
  const verify = () => nodeCrypto.verify(gateway.signer.publicKey, message, signature);
  row('verify one signature', each(300, verify) * 1000, 'µs');
}

sizes();
verifying();
merging();
comparing();
await memory();
