/** (B) Closed loop above capacity while the number of replicas changes: tokens per second follow the live replicas. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Fleet } from './fleet.ts';
import { tell } from './part-a.ts';
import { Traffic } from './traffic.ts';
import { line, type Window, windowsOf } from './windows.ts';

interface PartBOptions {
  /** Number of live replicas, one step after the other. */
  steps: readonly number[];
  /** After the number is reached. */
  secondsPerStep: number;
  /** Clients per concurrent response of the engines of the largest step. */
  clientsPerSlot: number;
  random: () => number;
  log(line: string): void;
}

export interface PartB {
  pearson: number;
  /** Slope of the least-squares line through the settled windows; an engine gives slots × rate. */
  tokensPerReplica: number;
  engineTokensPerSecond: number;
  clients: number;
  windows: Window[];
  requests: number;
  errors: number;
  /** How the first of the failed requests ended. */
  problems: string[];
}

/** Time for all clients to connect and to get their first token, before the first window. */
const WARM_UP_MS = 2_000;
/** A step has at least this many windows; a window is at least a second long. */
const WINDOWS_PER_STEP = 3;
const PROBLEMS_MAX = 30;

export async function partB(fleet: Fleet, options: PartBOptions): Promise<PartB> {
  const { steps, secondsPerStep, clientsPerSlot, random, log } = options;
  const clients = Math.ceil(Math.max(...steps) * fleet.options.slots * clientsPerSlot);
  const traffic = new Traffic('b', { port: fleet.gateway.port, key: fleet.key }, random);
  const servings = new Map<number, number[]>();
  const live = async (step: number) => {
    await fleet.atMost(step);
    await fleet.atLeast(step);
  };
  await live(steps[0] ?? 0);
  const going = traffic.closedLoop(clients);
  await sleep(WARM_UP_MS);
  const begin = Math.ceil(Date.now() / 1_000);
  const watch = setInterval(() => {
    const second = Math.floor(Date.now() / 1_000);
    servings.set(second, [...(servings.get(second) ?? []), fleet.serving]);
  }, 100);
  for (const step of steps) {
    log(`B: ${step} replicas`);
    await live(step);
    await sleep(secondsPerStep * 1_000);
  }
  const end = Math.floor(Date.now() / 1_000);
  clearInterval(watch);
  log(`B: ${traffic.underWay} requests are still under way`);
  await traffic.end();
  await going;
  const size = Math.max(1, Math.floor(secondsPerStep / WINDOWS_PER_STEP));
  const bad = traffic.results.filter(({ verdict }) => verdict !== 'ok');
  const seconds = Array.from({ length: Math.max(0, end - begin) }, (_, at) => ({
    servings: servings.get(begin + at) ?? [],
    tokens: traffic.tokensBySecond.get(begin + at) ?? 0,
  }));
  const windows = windowsOf(seconds, size);
  return {
    ...line(windows),
    engineTokensPerSecond: fleet.options.slots * fleet.options.tokensPerSecond,
    clients,
    windows,
    requests: traffic.results.length,
    errors: bad.length,
    problems: bad.slice(0, PROBLEMS_MAX).map(tell),
  };
}
