/** (B) Closed loop above capacity while the number of replicas changes: tokens per second follow the live replicas. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Fleet } from './fleet.ts';
import { tell } from './part-a.ts';
import { Traffic } from './traffic.ts';

interface PartBOptions {
  /** Number of live replicas, one step after the other. */
  steps: readonly number[];
  secondsPerStep: number;
  /** Clients per concurrent response of all engines together. */
  clientsPerSlot: number;
  random: () => number;
  log(line: string): void;
}

interface Window {
  /** Seconds since the part began. */
  at: number;
  /** Replicas that the gateway listed as serving, on average. */
  serving: number;
  tokensPerSecond: number;
}

export interface PartB {
  pearson: number;
  /** Slope of the least-squares line through the windows; an engine gives slots × rate. */
  tokensPerReplica: number;
  engineTokensPerSecond: number;
  clients: number;
  windows: Window[];
  requests: number;
  errors: number;
  /** How the first of the failed requests ended. */
  problems: string[];
}

/** A step has at least this many windows; a window is at least a second long. */
const WINDOWS_PER_STEP = 3;
const PROBLEMS_MAX = 30;

export async function partB(fleet: Fleet, options: PartBOptions): Promise<PartB> {
  const { steps, secondsPerStep, clientsPerSlot, random, log } = options;
  const clients = Math.ceil(fleet.replicas.length * fleet.options.slots * clientsPerSlot);
  const traffic = new Traffic('b', { port: fleet.gateway.port, key: fleet.key }, random);
  const servings = new Map<number, number[]>();
  const live = async (step: number) => {
    await fleet.atMost(step);
    await fleet.atLeast(step);
  };
  await live(steps[0] ?? 0);
  const begin = Math.ceil(Date.now() / 1_000);
  const watch = setInterval(() => {
    const second = Math.floor(Date.now() / 1_000);
    servings.set(second, [...(servings.get(second) ?? []), fleet.serving]);
  }, 100);
  const going = traffic.closedLoop(clients);
  for (const step of steps) {
    const until = Date.now() + secondsPerStep * 1_000;
    log(`B: ${step} replicas`);
    await live(step);
    await sleep(Math.max(0, until - Date.now()));
  }
  const end = Math.floor(Date.now() / 1_000);
  clearInterval(watch);
  log(`B: ${traffic.underWay} requests are still under way`);
  await traffic.end();
  await going;
  const size = Math.max(1, Math.floor(secondsPerStep / WINDOWS_PER_STEP));
  const bad = traffic.results.filter(({ verdict }) => verdict !== 'ok');
  const windows: Window[] = [];
  for (let at = begin; at + size <= end; at += size) {
    const seconds = Array.from({ length: size }, (_, n) => at + n);
    const seen = seconds.flatMap((second) => servings.get(second) ?? []);
    const tokens = seconds.reduce((sum, second) => sum + (traffic.tokensBySecond.get(second) ?? 0), 0);
    windows.push({ at: at - begin, serving: mean(seen), tokensPerSecond: tokens / size });
  }
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

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

/** Pearson's r of tokens per second against replicas, and the slope of the line. */
function line(windows: readonly Window[]): { pearson: number; tokensPerReplica: number } {
  const x = mean(windows.map(({ serving }) => serving));
  const y = mean(windows.map(({ tokensPerSecond }) => tokensPerSecond));
  let [xx, xy, yy] = [0, 0, 0];
  for (const { serving, tokensPerSecond } of windows) {
    xx += (serving - x) ** 2;
    xy += (serving - x) * (tokensPerSecond - y);
    yy += (tokensPerSecond - y) ** 2;
  }
  return { pearson: xy / Math.sqrt(xx * yy), tokensPerReplica: xy / xx };
}
