/** Gateway, agent, engine and client of the benchmarks of sealing, each a process. */
import { join } from 'node:path';
import * as z from 'zod';
import { startAgent } from '../test/support/agent.ts';
import { Gateway } from '../test/support/gateway.ts';
import { Managed } from '../test/support/processes.ts';
import { providerRoot } from '../test/support/provider-root.ts';
import { NODE, ROOT } from '../test/support/where.ts';
import { ranFor } from './ran-for.ts';
import type { Round } from './seal-client.ts';
import { quantile } from './stats.ts';

export const PROCESSES = ['engine', 'agent', 'gateway', 'client'] as const;
type ProcessName = (typeof PROCESSES)[number];

export interface Took {
  /** Wall time, seconds. */
  wall: number;
  /** CPU seconds of each process. */
  cpu: Record<ProcessName, number>;
  /** 99th percentile of the delays of paced streams, milliseconds. */
  p99: number;
}

/** CPU seconds of gateway and agent together. */
export const between = ({ cpu }: Took) => cpu.gateway + cpu.agent;
const doneSchema = z.object({ seconds: z.number(), p99: z.number() });

export async function openSealCluster() {
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

export type RunRound = Awaited<ReturnType<typeof openSealCluster>>;

/** Runs the variants alternately. Returns the median of each figure. */
export async function byTurns<How extends Round['how']>(
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

/** Sequential requests, clear and sealed alternately. */
export async function sealedRequests(round: RunRound, requests: number): Promise<{ clear: Took; sealed: Took }> {
  const took = await byTurns(round, { streams: 1, events: 1, perWrite: 1, everyMs: 0 }, ['clear', 'sealed'], requests);
  return { clear: took('clear'), sealed: took('sealed') };
}
