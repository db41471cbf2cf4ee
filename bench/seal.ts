/**
 * `npm run bench:seal -- [PART …]`: the cost of sealing, as ratios within one run. Parts: `work` (the client's work for
 * three candidates, the agent's to open and to seal a chunk), `request` (sequential requests), `unpaced` and `paced`
 * (streams); default: all. Engine and client are separate processes. `of clear` is by wall time, and by the CPU time of
 * gateway and agent, which other work on the machine hardly changes. `--requests N --streams N --events N --rounds N
 * --paced N`. Absolute times apply only to this machine.
 */
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import * as z from 'zod';
import { startAgent } from '../test/support/agent.ts';
import { Gateway } from '../test/support/gateway.ts';
import { endAll, Managed } from '../test/support/processes.ts';
import { providerRoot } from '../test/support/provider-root.ts';
import { NODE, ROOT } from '../test/support/where.ts';
import { ranFor } from './ran-for.ts';
import type { Round } from './seal-client.ts';
import { sealWork } from './seal-work.ts';
import { quantile } from './stats.ts';

const PARTS = ['work', 'request', 'unpaced', 'paced'] as const;
const count = z.coerce.number().int().positive();
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    requests: { type: 'string', default: '200' },
    streams: { type: 'string', default: '64' },
    events: { type: 'string', default: '16000' },
    rounds: { type: 'string', default: '5' },
    paced: { type: 'string', default: '256' },
  },
});
const { requests, streams, events, rounds, paced } = z
  .object({ requests: count, streams: count, events: count, rounds: count, paced: count })
  .parse(values);
const named = z.array(z.enum(PARTS)).parse(positionals);
const parts = new Set(named.length === 0 ? PARTS : named);

const PROCESSES = ['engine', 'agent', 'gateway', 'client'] as const;
type ProcessName = (typeof PROCESSES)[number];

interface Took {
  /** Wall time, seconds. */
  wall: number;
  /** CPU seconds of each process. */
  cpu: Record<ProcessName, number>;
  /** 99th percentile of the delays of paced streams, milliseconds. */
  p99: number;
}

/** CPU seconds of gateway and agent together. */
const between = ({ cpu }: Took) => cpu.gateway + cpu.agent;
const doneSchema = z.object({ seconds: z.number(), p99: z.number() });

async function openHouse() {
  const model = 'bench/seal';
  const root = await providerRoot('lab');
  const gateway = await Gateway.start();
  const [key, token] = await Promise.all([gateway.createKey(), gateway.createJoinToken()]);
  const engine = new Managed([NODE, join(ROOT, 'bench/seal-engine.ts'), model], { label: 'engine' });
  const [, engineUrl = ''] = await engine.line(/engine at (\S+)/, 20_000);
  const args = ['--delegate-file', root.delegateFile];
  const agent = await startAgent({ gateways: [gateway.url], token, engineUrl, args });
  await gateway.serving(1);
  const settings = { base: `${gateway.url}/v1`, key, model, pins: { lab: root.pin } };
  const client = new Managed([NODE, join(ROOT, 'bench/seal-client.ts'), JSON.stringify(settings)], {
    label: 'client',
    stdin: 'pipe',
  });
  const pids = { engine: engine.pid, agent: agent.pid, gateway: gateway.process.pid, client: client.pid };
  const cpuNow = () => each((name) => ranFor(pids[name]) / 1e9);
  let lines = 0;
  return async (asked: Round): Promise<Took> => {
    const before = cpuNow();
    client.child.stdin?.write(`${JSON.stringify(asked)}\n`);
    const all = await client.line(new RegExp(`^(?:[^\\n]*\\n){${lines}}([^\\n]+)\\n`), 300_000);
    lines++;
    const { seconds, p99 } = doneSchema.parse(JSON.parse(all[1] ?? ''));
    const after = cpuNow();
    return { wall: seconds, cpu: each((name) => after[name] - before[name]), p99 };
  };
}

function each(value: (name: ProcessName) => number): Record<ProcessName, number> {
  const [engine, agent, gateway, client] = PROCESSES.map(value);
  return { engine: engine ?? 0, agent: agent ?? 0, gateway: gateway ?? 0, client: client ?? 0 };
}

type RunRound = Awaited<ReturnType<typeof openHouse>>;

/** Runs the variants alternately. Returns the median of each figure. */
async function byTurns<How extends Round['how']>(
  round: RunRound,
  shape: Omit<Round, 'how'>,
  hows: readonly How[],
  times: number,
): Promise<(how: How) => Took> {
  const took = new Map<How, Took[]>(hows.map((how) => [how, []]));
  for (const how of hows) await round({ how, ...shape, streams: Math.min(4, shape.streams) });
  for (let n = 0; n < times; n++) for (const how of hows) took.get(how)?.push(await round({ how, ...shape }));
  return (how) => {
    const half = (value: (one: Took) => number) => quantile((took.get(how) ?? []).map(value), 0.5);
    return {
      wall: half(({ wall }) => wall),
      cpu: each((name) => half(({ cpu }) => cpu[name])),
      p99: half((one) => one.p99),
    };
  };
}

const ms = (seconds: number) => (seconds * 1000).toFixed(2);

async function request(round: RunRound): Promise<void> {
  const took = await byTurns(round, { streams: 1, events: 1, perWrite: 1, everyMs: 0 }, ['clear', 'sealed'], requests);
  const [clear, sealed] = [took('clear'), took('sealed')];
  console.log(
    `one request, median             clear ${ms(clear.wall)} ms, sealed ${ms(sealed.wall)} ms; CPU of gateway and agent ${ms(between(sealed) - between(clear))} ms more (required: 0.5)`,
  );
}

async function unpaced(round: RunRound): Promise<void> {
  for (const { perWrite, required } of [
    { perWrite: 8, required: 0.85 },
    { perWrite: 1, required: 0.35 },
  ]) {
    const hows = ['clear', 'sealed', 'unopened'] as const;
    const took = await byTurns(round, { streams, events, perWrite, everyMs: 0 }, hows, rounds);
    const [clear, sealed, unopened] = [took('clear'), took('sealed'), took('unopened')];
    const perEvent = (one: Took) => ((between(one) * 1e6) / streams / events).toFixed(1);
    console.log(
      `${streams} streams, ${perWrite} events a write     of clear, by the clock: ${(clear.wall / sealed.wall).toFixed(2)} opened, ${(clear.wall / unopened.wall).toFixed(2)} drained (required: ${required}); by CPU of gateway and agent: ${(between(clear) / between(unopened)).toFixed(2)}: ${perEvent(unopened)} µs an event for ${perEvent(clear)}; client ${(sealed.cpu.client / clear.cpu.client).toFixed(1)} times the CPU`,
    );
  }
}

/** Runs streams for ten seconds. `sampled` shows the delays if the client does not open every stream. */
async function pacedStreams(round: RunRound): Promise<void> {
  const hows = ['clear', 'sealed', 'sampled'] as const;
  const took = await byTurns(round, { streams: paced, events: 500, perWrite: 1, everyMs: 20 }, hows, 3);
  const late = hows.map((how) => `${how} ${took(how).p99.toFixed(1)} ms`).join(', ');
  console.log(
    `${paced} streams, 50 events/s       p99 from the engine's write to the client: ${late} (required: sealed as clear)`,
  );
  for (const how of hows) {
    const us = PROCESSES.map((name) => `${name} ${((took(how).cpu[name] * 1e6) / paced / 500).toFixed(1)}`);
    console.log(`    ${how.padEnd(28)}CPU an event: ${us.join(', ')} µs`);
  }
}

async function timed(part: (typeof PARTS)[number], run: () => Promise<void>): Promise<void> {
  if (!parts.has(part)) return;
  const from = performance.now();
  await run();
  console.log(`    ${part} ran for ${((performance.now() - from) / 1000).toFixed(0)} s`);
}

await timed('work', () => sealWork(requests));
if (parts.size > 1 || !parts.has('work')) {
  const round = await openHouse();
  await timed('request', () => request(round));
  await timed('unpaced', () => unpaced(round));
  await timed('paced', () => pacedStreams(round));
  await endAll();
}
