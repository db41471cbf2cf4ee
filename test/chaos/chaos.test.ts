/**
 * The short form of `npm run chaos`: sixteen agents on one small machine, a fault about every second, two gateway
 * kills. Under two minutes.
 */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { endAll } from '../support/processes.ts';
import { type Chaos, chaos, shortForm } from './chaos.ts';

/** The long form's is 0.9; here a window is a second. */
const PEARSON_LEAST = 0.8;

let seen: Chaos;

beforeAll(async () => {
  seen = await chaos({ ...shortForm(), parts: ['a', 'c', 'b'], seed: 1, log: () => undefined });
});
afterAll(endAll);

function part<Part>(part: Part | undefined): Part {
  if (part === undefined) throw new Error('it did not run');
  return part;
}

it('while nodes fall, no client that asked for one answer or for a stream that may be continued sees an error', () => {
  const { tallies, problems, strikes } = part(seen.a);
  expect(new Set(strikes.map(({ fault }) => fault)).size).toBeGreaterThan(4);
  expect(strikes.map(({ fault }) => fault)).toContain('engine hangs');
  if (seen.withoutFullDisk === undefined) expect(strikes.map(({ fault }) => fault)).toContain('disk full');
  else console.log(`without the fault of a full disk: ${seen.withoutFullDisk}`);
  for (const { kind, verdicts, requests } of tallies) {
    const told = kind === 'plain' ? {} : { broken: 0 };
    expect({ kind, ...verdicts }, problems.join('\n')).toMatchObject({ kind, failed: 0, false: 0, ...told });
    expect(requests).toBeGreaterThan(10);
  }
});

it('no agent sends a secret to a lying peer’s gateway', () => {
  const { asked, secrets } = part(seen.liar);
  expect(asked).toBeGreaterThan(0);
  expect(secrets).toBe(0);
});

it('every node that was struck serves again', () => {
  const { strikes, troubles } = part(seen.a);
  expect(troubles).toEqual([]);
  expect(strikes.filter(({ until }) => Number.isNaN(until))).toEqual([]);
});

it('no engine within reach answers what another one answers too, or works on for a client that has gone', () => {
  const { doublesWithinReach, leftBehind, generating } = part(seen.a).accounts;
  expect({ doublesWithinReach, leftBehind, generating }).toEqual({
    doublesWithinReach: [],
    leftBehind: [],
    generating: [],
  });
});

it('of a gateway that is killed twice only those see an error who were there, and all agents come back', () => {
  const { kills, unexcused } = part(seen.c);
  expect(unexcused).toEqual([]);
  expect(kills).toHaveLength(2);
  // The long form says how soon, on a machine without other work.
  for (const { allBackMs } of kills) expect(allBackMs).not.toBeNaN();
});

it('where most replicas fall at once every stream that may be continued waits for one, and ends whole', () => {
  const { errors, problems, requests } = part(seen.b);
  expect(errors, problems.join('\n')).toBe(0);
  expect(requests).toBeGreaterThan(90);
});

it('tokens per second follow the number of replicas that serve', () => {
  const { pearson, windows } = part(seen.b);
  expect(pearson, JSON.stringify(windows)).toBeGreaterThan(PEARSON_LEAST);
});
