/** The time that a gateway takes to refuse a key must not reveal how much of the key is right. */
import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { endAll } from '../../support/processes.ts';
import { openTestCluster, type TestCluster } from '../../support/test-cluster.ts';

/** Keys of each kind, sent alternately, so that other work on the machine affects both kinds equally. */
const TRIES = 300;
/**
 * A leak shows in each round; a disturbance by other work on the machine does not, so the round with the least
 * difference counts.
 */
const ROUNDS = 3;
/** Relative difference of the medians. Far above the difference of two equal kinds, even on a busy machine. */
const DIFFERENCE_MAX = 0.15;

let cluster: TestCluster;
beforeAll(async () => {
  cluster = await openTestCluster();
});
afterAll(endAll);

const random = (chars: number) => randomBytes(chars).toString('base64url').slice(0, chars);
const median = (times: number[]) => times.toSorted((one, other) => one - other)[Math.floor(times.length / 2)] ?? 0;
const difference = (near: number, far: number) => Math.abs(near - far) / far;

it('keys that have all but four characters of a valid key are refused as fast as keys that have none', async () => {
  const prefix = cluster.key.slice(0, cluster.key.length - 43);
  const near = () => cluster.key.slice(0, -4) + random(4);
  const far = () => prefix + random(cluster.key.length - prefix.length);
  const round = async () => {
    const times = { near: [] as number[], far: [] as number[] };
    for (let n = 0; n < TRIES; n++) {
      for (const [kind, key] of [
        ['near', near()],
        ['far', far()],
      ] as const) {
        const startedAt = performance.now();
        const response = await fetch(`${cluster.base}/models`, { headers: { authorization: `Bearer ${key}` } });
        await response.arrayBuffer();
        times[kind].push(performance.now() - startedAt);
        expect(response.status).toBe(401);
      }
    }
    return difference(median(times.near), median(times.far));
  };
  let least = Number.POSITIVE_INFINITY;
  for (let n = 0; n < ROUNDS && least >= DIFFERENCE_MAX; n++) least = Math.min(least, await round());
  expect(least).toBeLessThan(DIFFERENCE_MAX);
});
