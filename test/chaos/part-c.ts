/**
 * (C) The gateway is killed twice under load: the failed requests were running then, or arrived before it listened
 * again; all agents return soon.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Fleet } from './fleet.ts';
import { tell } from './part-a.ts';
import { TOKENS_MEAN, Traffic } from './traffic.ts';

interface PartCOptions {
  load: number;
  /** Between the kills, and after the last. */
  pauseSeconds: number;
  kills: number;
  random: () => number;
  log(line: string): void;
}

interface Kill {
  /** Milliseconds from the kill until it listened. */
  listensMs: number;
  /** Milliseconds from then until all agents served; NaN: not within a minute. */
  allBackMs: number;
  /** Requests that had to fail: running at the kill, or begun before it listened. */
  failed: number;
  /** Requests that were served although they were running or arrived in between. */
  saved: number;
}

export interface PartC {
  kills: Kill[];
  requests: number;
  /** Requests that failed without such a reason. */
  unexcused: string[];
}

const BACK_LIMIT_MS = 60_000;

interface Outage {
  killedAt: number;
  listensAt: number;
  allBackMs: number;
}

export async function partC(fleet: Fleet, options: PartCOptions): Promise<PartC> {
  const { load, pauseSeconds, kills, random, log } = options;
  const traffic = new Traffic('c', { port: fleet.gateway.port, key: fleet.key }, random);
  const going = traffic.openLoop((fleet.capacity * load) / TOKENS_MEAN);
  const outages: Outage[] = [];
  for (let n = 0; n < kills; n++) {
    await sleep(pauseSeconds * 1_000);
    const killedAt = Date.now();
    await fleet.gateway.kill9();
    await fleet.gateway.restart();
    const listensAt = Date.now();
    log(`C: the gateway listened again after ${listensAt - killedAt} ms`);
    outages.push({ killedAt, listensAt, allBackMs: await allBack(fleet, killedAt, listensAt) });
  }
  await sleep(pauseSeconds * 1_000);
  log(`C: ${traffic.underWay} requests are still under way`);
  await traffic.end();
  await going;
  const { results } = traffic;
  const bad = results.filter(({ verdict }) => verdict !== 'ok' && verdict !== 'left');
  const within = ({ startedAt, endedAt }: (typeof results)[number], { killedAt, listensAt }: Outage) =>
    startedAt < listensAt && endedAt >= killedAt;
  return {
    kills: outages.map((outage) => {
      const met = results.filter((result) => within(result, outage));
      const failed = met.filter((result) => bad.includes(result)).length;
      const { killedAt, listensAt, allBackMs } = outage;
      return { listensMs: listensAt - killedAt, allBackMs, failed, saved: met.length - failed };
    }),
    requests: results.length,
    unexcused: bad.filter((result) => !outages.some((outage) => within(result, outage))).map(tell),
  };
}

/**
 * The registry remembers the serving sessions, so an agent is back only after it has dialed again and got an answer.
 */
async function allBack(fleet: Fleet, killedAt: number, listensAt: number): Promise<number> {
  while (Date.now() - listensAt < BACK_LIMIT_MS) {
    const answered = fleet.replicas.map(({ options }) => options.door.answeredAt);
    const all = answered.every((at) => at >= killedAt) && (await fleet.look().catch(() => 0)) >= answered.length;
    if (all) return Date.now() - listensAt;
    await sleep(20);
  }
  return Number.NaN;
}
