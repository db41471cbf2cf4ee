/** The three parts on one fleet, and their requirements. */
import { generateKeyPairSync } from 'node:crypto';
import { join } from 'node:path';
import { lyingGateway } from '../support/lying-gateway.ts';
import { seeded } from '../support/random.ts';
import { deepJson } from './deep-json.ts';
import { faults, type Pause } from './faults.ts';
import { Fleet } from './fleet.ts';
import { fullDisk, gatewayDisk } from './full-disk.ts';
import { clientErrors, type PartA, partA } from './part-a.ts';
import { type PartB, partB } from './part-b.ts';
import { type PartC, partC } from './part-c.ts';
import { PREEMPTION, whyNoSlurm } from './slurm-replica.ts';

export type PartName = 'a' | 'b' | 'c';

interface ChaosOptions {
  parts: readonly PartName[];
  seed: number;
  replicas: number;
  slots: number;
  tokensPerSecond: number;
  load: number;
  /** Two replicas run in jobs of a real Slurm, which preempts them. */
  slurm: boolean;
  a: {
    calmSeconds: number;
    seconds: number;
    every: readonly [number, number];
    atOnce: number;
    pauseMs: Pause;
    hangMs: Pause;
  };
  b: { steps: readonly number[]; secondsPerStep: number };
  c: { pauseSeconds: number };
  log(line: string): void;
}

export interface Chaos {
  options: Omit<ChaosOptions, 'log'>;
  /** The reason that the gateway's disk could not be filled here. */
  withoutFullDisk?: string;
  /** Requests that agents sent to the lying peer; `secrets`: requests that contained a secret. */
  liar?: { asked: number; secrets: number };
  a?: PartA;
  b?: PartB;
  c?: PartC;
}

const COMMON = { seed: 1, replicas: 16, slots: 4, tokensPerSecond: 20, load: 0.5 };

/** Every part, `minutes` for (A). */
export function longForm(minutes: number): Omit<ChaosOptions, 'log' | 'parts'> {
  return {
    ...COMMON,
    slurm: whyNoSlurm() === undefined,
    a: {
      calmSeconds: minutes * 3,
      seconds: minutes * 60,
      every: [2_000, 10_000],
      atOnce: 6,
      pauseMs: [1_500, 20_000],
      hangMs: [15_000, 60_000],
    },
    b: { steps: [16, 12, 8, 4, 6, 10, 14, 16, 4, 9, 13, 16], secondsPerStep: 20 },
    c: { pauseSeconds: 6 },
  };
}

/**
 * Under two minutes in total, to see if it still holds. A hanging engine is detected after 20 s, which is most of (A).
 */
export function shortForm(): Omit<ChaosOptions, 'log' | 'parts'> {
  return {
    ...COMMON,
    // Each token wakes two processes. Two slow cores beside other tests manage about 400 tokens per second.
    tokensPerSecond: 10,
    // Slurm's own grace period and its wait before a restart take longer than this.
    slurm: false,
    a: {
      calmSeconds: 2,
      seconds: 30,
      every: [700, 1_500],
      atOnce: 6,
      pauseMs: [1_000, 11_500],
      hangMs: [22_000, 27_000],
    },
    b: { steps: [10, 7, 4], secondsPerStep: 4 },
    c: { pauseSeconds: 2 },
  };
}

export async function chaos(options: ChaosOptions): Promise<Chaos> {
  const { parts, seed, replicas, slots, tokensPerSecond, load, slurm, log } = options;
  const random = seeded(seed);
  const startedAt = Date.now();
  const disk = gatewayDisk();
  if (typeof disk === 'string') log(`without the fault of a full disk: ${disk}`);
  const place = typeof disk === 'string' ? {} : { data: join(disk.path, 'data') };
  const fleet = await Fleet.open({ replicas, slots, tokensPerSecond, slurm, ...place });
  log(`${replicas} replicas serve after ${((Date.now() - startedAt) / 1_000).toFixed(1)} s`);
  const { log: _, ...told } = options;
  const result: Chaos = { options: told, ...(typeof disk === 'string' && { withoutFullDisk: disk }) };
  const drawn = [...faults(options.a.pauseMs, options.a.hangMs), ...(slurm ? [PREEMPTION] : [])];
  if (typeof disk !== 'string') drawn.push(fullDisk(disk));
  drawn.push(deepJson(fleet.gateway, fleet.key));
  const liar = await lyingGateway(random);
  const { x: root } = generateKeyPairSync('ed25519').publicKey.export({ format: 'jwk' });
  await fleet.gateway.admin('POST', 'peers', { name: 'liar', root, url: liar.url });
  if (parts.includes('a')) result.a = await partA(fleet, { ...options.a, load, faults: drawn, random, log });
  if (parts.includes('c')) result.c = await partC(fleet, { ...options.c, load, kills: 2, random, log });
  if (parts.includes('b')) result.b = await partB(fleet, { ...options.b, clientsPerSlot: 1.5, random, log });
  result.liar = { asked: liar.asked.length, secrets: liar.secretsSeen.length };
  return result;
}

const PEARSON_LEAST = 0.9;
const BACK_MOST_MS = 5_000;

/** One line of the report: the observation, the requirement, and whether it is met. */
export interface Finding {
  what: string;
  seen: string;
  required: string;
  met: boolean;
}

export function findings({ a, b, c, liar }: Chaos): Finding[] {
  const found: Finding[] = [];
  const add = (what: string, seen: string | number, required: string, met: boolean) =>
    found.push({ what, seen: String(seen), required, met });
  if (liar !== undefined)
    add(
      `requests with a secret to a lying peer’s gateway, of ${liar.asked}`,
      liar.secrets,
      '0',
      liar.asked > 0 && liar.secrets === 0,
    );
  if (a !== undefined) {
    const { doublesWithinReach, generating, leftBehind } = a.accounts;
    const unexcused = doublesWithinReach.length;
    const lost = a.strikes.filter(({ until }) => Number.isNaN(until)).length;
    add(
      'A: errors seen by clients of unary requests and resumable streams',
      clientErrors(a),
      '0',
      clientErrors(a) === 0,
    );
    add('A: answered twice, though no node was paused or cut off', unexcused, '0', unexcused === 0);
    add(
      'A: engines still generating at the end, when all clients had gone',
      generating.length,
      '0',
      generating.length === 0,
    );
    add(
      'A: attempts that ended at their engine more than 1 s after their client had left',
      leftBehind.length,
      '0',
      leftBehind.length === 0,
    );
    add('A: nodes that did not serve again', lost, '0', lost === 0);
  }
  if (b !== undefined) {
    add('B: streams, all of them resumable, that did not end whole', b.errors, '0', b.errors === 0);
    add(
      'B: Pearson’s r of tokens/s against replicas that serve',
      b.pearson.toFixed(3),
      `≥ ${PEARSON_LEAST}`,
      b.pearson >= PEARSON_LEAST,
    );
  }
  if (c !== undefined) {
    const slowest = Math.max(
      ...c.kills.map(({ allBackMs }) => (Number.isNaN(allBackMs) ? Number.POSITIVE_INFINITY : allBackMs)),
    );
    add(
      'C: requests that failed and came after the gateway listened again',
      c.unexcused.length,
      '0',
      c.unexcused.length === 0,
    );
    add('C: until all agents were back', `${(slowest / 1_000).toFixed(1)} s`, '≤ 5 s', slowest <= BACK_MOST_MS);
  }
  return found;
}
