/** Requests per second in a closed loop, by wrk: C, one thread, keep-alive. Direct and gateway alternate. */
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { ROOT } from '../../test/support/where.ts';
import { type BenchCluster, chat, type Memory, PATH, peak } from '../bench-cluster.ts';
import type { Target } from '../client.ts';
import { judged, type Row } from '../report.ts';
import { median, repeated } from '../stats.ts';

const LIMIT_AT_64 = 5_000;
/** wrk's default of 2 s would count slow responses as errors. */
const SLOW_S = 30;

interface WrkResult {
  perSecond: number;
  p50Ms: number;
  p99Ms: number;
}

function milliseconds(text: string): number {
  const [, value = '', unit = ''] = /([\d.]+)(us|ms|s|m)/.exec(text) ?? [];
  const scale: Record<string, number> = { us: 0.001, ms: 1, s: 1_000, m: 60_000 };
  return Number(value) * (scale[unit] ?? Number.NaN);
}

/** Runs without blocking this process, which samples the memory of the others meanwhile. */
export function wrk(target: Target, connections: number, seconds: number, path = PATH): Promise<WrkResult> {
  const args = [
    '-t1',
    `-c${connections}`,
    `-d${seconds}s`,
    `--timeout=${SLOW_S}s`,
    '--latency',
    '-s',
    join(ROOT, 'bench/post.lua'),
    `${target.url}${path}`,
  ];
  const headers = Object.entries(target.headers ?? {}).map(([name, value]) => `${name}: ${value}\n`);
  const env = {
    ...process.env,
    BENCH_BODY: JSON.stringify(chat('unary')),
    BENCH_KEY: target.key ?? 'none',
    BENCH_HEADERS: headers.join(''),
  };
  return new Promise((resolve, reject) => {
    const child = spawn('wrk', args, { env, stdio: ['ignore', 'pipe', 'inherit'] });
    let out = '';
    child.stdout.on('data', (piece) => {
      out += piece;
    });
    child.once('error', reject);
    child.once('close', () => {
      const perSecond = Number(/Requests\/sec:\s+([\d.]+)/.exec(out)?.[1] ?? Number.NaN);
      if (Number.isNaN(perSecond) || /Non-2xx|Socket errors/.test(out)) reject(new Error(`wrk: ${out}`));
      const p = (name: string) => milliseconds(new RegExp(`${name}%\\s+(\\S+)`).exec(out)?.[1] ?? '');
      resolve({ perSecond, p50Ms: p('50'), p99Ms: p('99') });
    });
  });
}

export interface Plan {
  repeats: number;
  seconds: number;
  connections: number[];
}

export async function throughput(cluster: BenchCluster, plan: Plan): Promise<{ rows: Row[]; loaded: Memory }> {
  const rows: Row[] = [];
  const loaded = await peak(cluster, async () => {
    for (const connections of plan.connections) {
      const direct: WrkResult[] = [];
      const through: WrkResult[] = [];
      for (let n = 0; n < plan.repeats; n++) {
        direct.push(await wrk(cluster.direct, connections, plan.seconds));
        through.push(await wrk(cluster.through, connections, plan.seconds));
      }
      const { median: value, least, most } = repeated(through.map((result) => result.perSecond));
      const row = {
        what: 'requests per second',
        at: `${connections} connection${connections === 1 ? '' : 's'}`,
        direct: median(direct.map((result) => result.perSecond)),
        gateway: value,
        value,
        unit: '/s',
        spread: [least, most] as [number, number],
        note: `gateway p50 ${median(through.map((result) => result.p50Ms)).toFixed(2)} ms, p99 ${median(through.map((result) => result.p99Ms)).toFixed(2)} ms`,
      };
      rows.push(connections === 64 ? judged(row, { least: LIMIT_AT_64 }) : row);
    }
  });
  return { rows, loaded };
}
