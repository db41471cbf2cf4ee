import { setTimeout as sleep } from 'node:timers/promises';
import { judged, type Row } from '../report.ts';
import { median, quantile } from '../stats.ts';
import type { GossipCluster, Seen } from './gossip-cluster.ts';
import { noTraffic, traffic } from './network.ts';
import { processorMs } from './processor.ts';

/** Interval between updates, long enough that the previous one has reached every agent. */
const BETWEEN_MS = 200;
/** Wait after the last update. An update that has not arrived by then counts with this delay. */
const AFTER_MS = 3_000;

/** Duration of the measurement without updates, whose costs are subtracted. */
const REST_MS = 5_000;

/** The total costs of a cluster so far. */
interface Spent {
  at: number;
  processorMs: number;
  messages: number;
  /** Bytes of gossip, with AROUND_BYTES for each message. */
  bytes: number;
  /** What the agents observed since the last call of `spent`. */
  seen: Seen[];
}

async function spent(village: GossipCluster): Promise<Spent> {
  const { sent, seen } = await village.report();
  const { messages, bytes } = sent;
  const pids = village.processes.map(({ pid }) => pid);
  return {
    at: performance.now(),
    processorMs: processorMs(pids),
    messages,
    bytes: bytes + AROUND_BYTES * messages,
    seen,
  };
}

/**
 * The cost of `updates` updates per agent, from `begin` to `end`, minus the cost of an idle cluster in the same time.
 */
function costs(village: GossipCluster, updates: number, rest: [Spent, Spent], wave: [Spent, Spent]): Row[] {
  const share = (wave[1].at - wave[0].at) / (rest[1].at - rest[0].at);
  const at = `${village.size} agents, ${updates} updates`;
  const row = (what: string, of: 'processorMs' | 'messages' | 'bytes', unit: string) => {
    const beyond = wave[1][of] - wave[0][of] - share * (rest[1][of] - rest[0][of]);
    return { what: `… ${what} per agent and update`, at, value: beyond / updates / village.size, unit };
  };
  return [
    row('processor time', 'processorMs', 'ms'),
    row('messages sent', 'messages', 'messages'),
    row('bytes sent', 'bytes', 'B'),
  ];
}

/** How an update spreads: from the call that publishes it until each other agent has merged it. */
export async function spread(village: GossipCluster, updates: number): Promise<Row[]> {
  const idle = await spent(village);
  await sleep(REST_MS);
  const begin = await spent(village);
  const published = new Map<string, number>();
  for (let n = 0; n < updates; n++) {
    const said = await village.publish(village.anyone());
    if (said !== undefined) published.set(`${said.session} ${said.version}`, said.at);
    await sleep(BETWEEN_MS);
  }
  await sleep(AFTER_MS);
  const end = await spent(village);
  const delays = new Map<string, Map<string, number>>();
  for (const { process, index, session, version, at } of end.seen) {
    const name = `${session} ${version}`;
    const since = published.get(name);
    if (since === undefined) continue;
    const one = delays.get(name) ?? new Map<string, number>();
    const who = `${process}/${index}`;
    if (!one.has(who)) one.set(who, (at - since) / 1e6);
    delays.set(name, one);
  }
  // The publisher is included, with no delay.
  const each = [...published.keys()].map((name) => {
    const times = [...(delays.get(name)?.values() ?? [])].sort((a, b) => a - b).slice(1);
    while (times.length < village.size - 1) times.push(Number.POSITIVE_INFINITY);
    return times;
  });
  const all = each.flat();
  const last = each.map((times) => times.at(-1) ?? 0);
  const at = `${village.size} agents, ${updates} updates`;
  const row = (what: string, value: number) => ({ what, at, value, unit: 'ms' });
  return [
    judged(row('an update reaches half of the agents', quantile(all, 0.5)), { most: 10 }),
    judged(row('… 95 %', quantile(all, 0.95)), { most: 50 }),
    judged(
      { ...row('… the last one, worst update', Math.max(...last)), spread: [Math.min(...last), median(last)] },
      { most: 1_000 },
    ),
    ...costs(village, updates, [idle, begin], [begin, end]),
  ];
}

/** TCP, IP and TLS overhead per gossip message, as the requirement counts it. */
const AROUND_BYTES = 66;

interface Sent {
  /** Gossip messages plus AROUND_BYTES each, per agent and second. */
  gossip: number;
  /** Everything on the wire: handshakes, headers, acknowledgments. Undefined if that cannot be seen. */
  wire: { bytes: number; packets: number } | undefined;
}

async function sentPerAgent(village: GossipCluster, act: () => Promise<void>): Promise<Sent> {
  const before = (await village.report()).sent;
  const wire = traffic();
  const startedAt = performance.now();
  await act();
  const per = (village.size * (performance.now() - startedAt)) / 1_000;
  const now = traffic();
  const after = (await village.report()).sent;
  const messages = after.messages - before.messages;
  return {
    gossip: (after.bytes - before.bytes + AROUND_BYTES * messages) / per,
    wire:
      wire === undefined || now === undefined
        ? undefined
        : { bytes: (now.bytes - wire.bytes) / per, packets: (now.packets - wire.packets) / per },
  };
}

function wireRow(sent: Sent, at: string, skipped: string[]): Row[] {
  if (sent.wire === undefined) {
    skipped.push(`${at}: ${noTraffic}`);
    return [];
  }
  const what = '… on the wire: handshakes, acknowledgements, every header';
  return [{ what, at, value: sent.wire.bytes, unit: 'B/s' }];
}

/** Measures what an agent sends while nothing changes. */
export async function idle(village: GossipCluster, ms: number, skipped: string[]): Promise<Row[]> {
  const sent = await sentPerAgent(village, () => sleep(ms));
  const at = `${village.size} agents, ${ms / 1_000} s`;
  const row = { what: 'idle traffic per agent', at, value: sent.gossip, unit: 'B/s' };
  return [judged(row, { most: 500 }), ...wireRow(sent, at, skipped)];
}

/** Each agent ends its session and returns with a new one every `everyMs`. */
export async function churn(
  village: GossipCluster,
  everyMs: number,
  rounds: number,
  skipped: string[],
): Promise<Row[]> {
  const stepMs = everyMs / village.size;
  const startedAt = performance.now();
  const sent = await sentPerAgent(village, async () => {
    for (let n = 0; n < rounds * village.size; n++) {
      await village.again(n % village.size);
      await sleep(Math.max(0, (n + 1) * stepMs - (performance.now() - startedAt)));
    }
  });
  await village.together();
  const at = `${village.size} agents, each every ${everyMs / 1_000} s`;
  const row = { what: 're-registering, per agent', at, value: sent.gossip, unit: 'B/s' };
  return [judged(row, { most: 8_000 }), ...wireRow(sent, at, skipped)];
}

/** Stops process `which` with `signal`. Returns when each other agent stopped routing to it, in ms after the signal. */
async function stopped(
  village: GossipCluster,
  signal: 'SIGKILL' | 'SIGSTOP',
  which: number,
  waitMs: number,
): Promise<number[]> {
  const victim = village.processes.at(which);
  if (victim === undefined) return [];
  const own = await victim.ask({ do: 'publish', index: 0, state: 'SERVING' });
  const session = own.published?.session ?? '';
  await sleep(1_000);
  village.processes.splice(which, 1);
  await village.report();
  const at = Number(process.hrtime.bigint());
  victim.signal(signal);
  await sleep(waitMs);
  const { seen } = await village.report();
  if (signal === 'SIGSTOP') {
    victim.signal('SIGCONT');
    village.processes.push(victim);
  }
  const first = new Map<string, number>();
  for (const one of seen) {
    const who = `${one.process}/${one.index}`;
    const gone = one.liveness !== 'alive' || one.state === 'LEFT';
    if (one.session === session && gone && !first.has(who)) first.set(who, (one.at - at) / 1e6);
  }
  const times = [...first.values()];
  const others = village.processes.length - (signal === 'SIGSTOP' ? 1 : 0);
  while (times.length < others) times.push(Number.POSITIVE_INFINITY);
  return times;
}

/**
 * A process hangs with open sockets, `times` times: measures until no other agent would route to it. Another process
 * each time, because a session that was suspected repeatedly is trusted again later and later.
 */
export async function hung(village: GossipCluster, times: number): Promise<Row[]> {
  const last: number[] = [];
  for (let n = 0; n < times; n++) {
    last.push(Math.max(...(await stopped(village, 'SIGSTOP', 0, 6_000))));
    await village.together();
  }
  const row = { at: `${village.size} agents, ${times} times`, unit: 'ms' };
  const value = quantile(last, 0.95);
  const what = 'silent hang: all others do not route to it, p95';
  return [judged({ ...row, what, value, spread: [Math.min(...last), Math.max(...last)] }, { most: 4_000 })];
}

/** A process is killed: measures until no other agent would route to it. */
export async function killed(village: GossipCluster): Promise<Row[]> {
  const row = { at: `${village.size} agents`, unit: 'ms' };
  const times = await stopped(village, 'SIGKILL', 0, 5_000);
  return [
    { ...row, what: 'killed process: half of the others do not route to it', value: quantile(times, 0.5) },
    judged({ ...row, what: '… all of them', value: Math.max(...times) }, { most: 100 }),
  ];
}
