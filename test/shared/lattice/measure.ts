/** `node test/shared/lattice/measure.ts`: what the registry's lattice costs on this machine. Medians of several runs; one thread. */
import { nodeCrypto } from '../../../agent/host/crypto.ts';
import { encodeDigest } from '../../../shared/lattice/digest.ts';
import { Replica } from '../../../shared/lattice/replica.ts';
import { encodeUpdate, type Update } from '../../../shared/lattice/update.ts';
import { institution, node } from './house.ts';

const lab = institution();
const gateway = lab.gateway();
const { issuer } = lab;
const fresh = () => new Replica({ crypto: nodeCrypto, accepts: () => true });

function timed(run: () => void): number {
  const start = performance.now();
  run();
  return performance.now() - start;
}

/** Milliseconds; the first run warms up and does not count. */
function median(times: number, run: () => void): number {
  const all = Array.from({ length: times + 1 }, () => timed(run)).slice(1);
  return all.sort((a, b) => a - b)[Math.floor(times / 2)] ?? Number.NaN;
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

function merge(replica: Replica, all: readonly Uint8Array[]): void {
  for (const bytes of all) replica.merge(bytes);
}

function load(replica: Replica, all: readonly Uint8Array[]): void {
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
  row('digest of 1,000 entries', encodeDigest(replica.digest({ issuer })).length, 'B');
  row(
    'make and encode it',
    median(9, () => encodeDigest(replica.digest({ issuer }))),
    'ms',
  );
  const digest = replica.digest({ issuer });
  row(
    'delta against an equal digest',
    median(9, () => replica.delta(digest)),
    'ms',
  );
  const sessions = [...replica.entries()].map((entry) => entry.session);
  row('fingerprint', median(9, () => replica.fingerprint(issuer)) * 1000, 'µs');
  const looks = 100_000;
  const lookUp = () => {
    for (let i = 0; i < looks; i++) replica.get(sessions[i % sessions.length] ?? '');
  };
  row('look a session up', (median(5, lookUp) / looks) * 1e6, 'ns');
  const walk = () => {
    let ready = 0;
    for (const entry of replica.entries()) if (entry.state === 'SERVING' && entry.payload !== undefined) ready++;
    return ready;
  };
  row('read all payloads for the first time', timed(walk), 'ms');
  row('walk 1,000 entries with their payloads afterwards', median(9, walk) * 1000, 'µs');
}

function memory(): void {
  const count = 20_000;
  const updates = nodesOf(count).map((each) =>
    encodeUpdate({ ...each.says('LEFT', 2), ...gateway.evict(each.session) }),
  );
  globalThis.gc?.();
  const before = process.memoryUsage();
  const replica = fresh();
  load(replica, updates);
  globalThis.gc?.();
  const after = process.memoryUsage();
  const bytes = after.heapUsed + after.arrayBuffers - before.heapUsed - before.arrayBuffers;
  row(`a tombstone in memory (of ${updates.length}, ${replica.size} sessions)`, bytes / count, 'B');
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
  const verify = () => {
    for (let i = 0; i < 200; i++) nodeCrypto.verify(gateway.signer.publicKey, message, signature);
  };
  row('verify one signature', (median(9, verify) / 200) * 1000, 'µs');
}

sizes();
verifying();
merging();
comparing();
memory();
