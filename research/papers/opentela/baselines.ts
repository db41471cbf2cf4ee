/** What the line between two hosts carries without OpenTela: ping and iperf3 in their network namespaces. */
import { execFile, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { promisify } from 'node:util';
import * as z from 'zod';
import { on } from '../../../test/netns/network.ts';
import { atEnd } from '../../../test/support/processes.ts';
import { median } from './stages.ts';

const PINGS = 20;
const IPERF_S = 3;
const IPERF_PORT = 5201;
const PROGRAMS = ['ping', 'iperf3'];

export interface Baseline {
  /** Median round trip of ICMP echoes. */
  pingMs: number;
  /** One TCP connection. */
  mibPerS: number;
}

const reportSchema = z.object({ end: z.object({ sum_received: z.object({ bits_per_second: z.number() }) }) });

/** The missing programs; Debian's packages are iputils-ping and iperf3. */
export function missingPrograms(): string[] {
  return PROGRAMS.filter((name) => spawnSync(name, ['-h']).error !== undefined);
}

/** @param address of `to`, as `from` reaches it */
export async function measureLine(from: string, to: string, address: string): Promise<Baseline> {
  const run = async (command: string[]) => {
    const [program = '', ...args] = [...on(from), ...command];
    return (await promisify(execFile)(program, args, { timeout: 60_000 })).stdout;
  };
  const pings = await run(['ping', '-n', '-c', String(PINGS), '-i', '0.1', address]);
  const times = [...pings.matchAll(/ time=([\d.]+) ms/g)].map(([, ms]) => Number(ms));
  if (times.length === 0) throw new Error(`${from} has no echo from ${address}`);
  const [program = '', ...args] = [...on(to), 'iperf3', '-s', '-1', '-p', String(IPERF_PORT), '--forceflush'];
  const server = spawn(program, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  atEnd(() => void server.kill());
  await once(server.stdout, 'data');
  const report = await run(['iperf3', '-J', '-c', address, '-p', String(IPERF_PORT), '-t', String(IPERF_S)]);
  const bits = reportSchema.parse(JSON.parse(report)).end.sum_received.bits_per_second;
  return { pingMs: median(times), mibPerS: bits / 8 / 2 ** 20 };
}
