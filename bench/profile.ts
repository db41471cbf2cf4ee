/**
 * `node bench/profile.ts [SECONDS] [CONNECTIONS]`: small requests through a gateway and an agent that profile
 * themselves. Prints the share of each source file in the processor time of each program, and from `strace` how long
 * the gateway's main thread waited for the disk to store files. Shares are reliable on a busy machine.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { endAll, temporaryDirectory } from '../test/support/processes.ts';
import { ROOT } from '../test/support/where.ts';
import { openBenchCluster, warm } from './bench-cluster.ts';
import { wrk } from './sections/throughput.ts';

const WARM_REQUESTS = 2_000;
const SAMPLED_EVERY_US = 500;
const FILES_PRINTED = 30;
const END_WITHIN_MS = 10_000;
const PERCENT = 100;
const MS_PER_S = 1_000;

const profileSchema = z.object({
  nodes: z.array(z.object({ id: z.number(), callFrame: z.object({ functionName: z.string(), url: z.string() }) })),
  /** Microseconds of CLOCK_MONOTONIC, as `process.hrtime`. */
  startTime: z.number(),
  samples: z.array(z.number()),
  timeDeltas: z.array(z.number()),
});

const nowUs = () => Number(process.hrtime.bigint() / 1_000n);

/** Prints the share of each file in the time of the samples between two times, idle time left out. */
function printProfile(path: string, from: number, to: number): void {
  const { nodes, samples, startTime, timeDeltas } = profileSchema.parse(JSON.parse(readFileSync(path, 'utf8')));
  const places = new Map(
    nodes.map(({ id, callFrame: { functionName, url } }): [number, string] => [
      id,
      url === '' ? functionName : url.replace(`file://${ROOT}`, '').replace(/^.*\/node_modules\//, ''),
    ]),
  );
  const times = new Map<string, number>();
  let all = 0;
  let now = startTime;
  for (const [at, id] of samples.entries()) {
    const place = places.get(id) ?? '';
    const time = timeDeltas[at] ?? 0;
    now += time;
    if (place === '(idle)' || now < from || now > to) continue;
    all += time;
    times.set(place, (times.get(place) ?? 0) + time);
  }
  const sorted = [...times].sort(([, a], [, b]) => b - a).slice(0, FILES_PRINTED);
  for (const [place, time] of sorted) console.log(`${((PERCENT * time) / all).toFixed(1).padStart(5)} % ${place}`);
}

/** Prints the waits of the process `pid` for the disk, since the trace had `from` characters. */
function printSyncs(trace: string, from: number, pid: number): void {
  const seconds = [
    ...readFileSync(trace, 'utf8')
      .slice(from)
      .matchAll(/^(\d+) .*<([\d.]+)>$/gm),
  ]
    .filter(([, thread]) => Number(thread) === pid)
    .map(([, , text]) => Number(text));
  const sum = seconds.reduce((total, one) => total + one, 0);
  const longest = Math.max(0, ...seconds);
  console.log(
    `fsync on the main thread: ${seconds.length}, ${(sum * MS_PER_S).toFixed(1)} ms in all, longest ${(longest * MS_PER_S).toFixed(1)} ms`,
  );
}

const [seconds = 10, connections = 64] = process.argv.slice(2).map(Number);
const directory = await temporaryDirectory('otela-profile');
const trace = join(directory, 'fsync');
const flags = `--cpu-prof --cpu-prof-dir=${directory} --cpu-prof-interval=${SAMPLED_EVERY_US}`;
const prefix = ['strace', '-f', '--seccomp-bpf', '-e', 'trace=fsync,fdatasync', '-T', '-o', trace];
const cluster = await openBenchCluster(undefined, { prefix, env: { NODE_OPTIONS: flags } });
await warm(cluster.through, WARM_REQUESTS);
const before = readFileSync(trace, 'utf8').length;
const from = nowUs();
const { perSecond } = await wrk(cluster.through, connections, seconds);
const to = nowUs();
console.log(`${perSecond.toFixed(0)} requests/s`);
const traced = cluster.gateway.process.pid;
const children = readFileSync(`/proc/${traced}/task/${traced}/children`, 'utf8').trim().split(' ').map(Number);
printSyncs(trace, before, children[0] ?? traced);
for (const [name, program] of [['gateway', cluster.gateway.process] as const, ['agent', cluster.agent] as const]) {
  const known = new Set(readdirSync(directory));
  for (const pid of name === 'gateway' ? children : [program.pid]) process.kill(pid, 'SIGTERM');
  await program.end(END_WITHIN_MS);
  const [made] = readdirSync(directory).filter((file) => file.endsWith('.cpuprofile') && !known.has(file));
  console.log(`\n${name}:`);
  if (made !== undefined) printProfile(join(directory, made), from, to);
}
await endAll();
