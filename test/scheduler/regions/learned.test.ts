/** A learned policy on a gateway's data: it multiplies the shares of the quadratic program, and nothing else. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { FeedForward } from '../../../scheduler/regions/learned/feed-forward.ts';
import { LAYERS, type LearnedPolicy, learnedPolicy } from '../../../scheduler/regions/learned/learned-policy.ts';
import { readPolicyParameters } from '../../../scheduler/regions/learned/policy-file.ts';
import type { OriginView } from '../../../scheduler/regions/live/merge-origins.ts';
import { LivePlanner } from '../../../scheduler/regions/live/region-planner.ts';
import { ROOT } from '../../support/where.ts';

const TRAINED = join(ROOT, 'research/data/regions/policy.json');

/** What the gateway of `origin` observed: its own region is near. */
function view(origin: string, regions: readonly string[], arrived = 100): OriginView {
  const places = regions.map((region) => ({
    region,
    replicas: 4,
    power: { busyW: 500, idleW: 100 },
    answered: arrived / regions.length,
    arrived: arrived / regions.length,
    own: 2,
    others: 1,
    serviceS: 4,
    concurrency: 8,
    waiting: 3,
  }));
  const roundTripS = new Map(regions.map((region) => [region, region === origin ? 0.01 : 0.2]));
  return { origin, observed: { models: [{ model: 'm', arrived, places }], roundTripS } };
}

const planner = (learned?: LearnedPolicy, smoothness = 0.05) =>
  new LivePlanner({ slotS: 45, secondsPerUsd: 0, smoothness, learned });
const zeros = () => new Float64Array(new FeedForward(LAYERS).parameters.length);
const rows = (views: readonly OriginView[], of: LivePlanner) =>
  of.plan(views, []).models[0]?.origins.map(({ shares }) => shares) ?? [];

describe('a learned policy', () => {
  it('that has learned nothing leaves the shares of the quadratic program', () => {
    const views = ['ch', 'fi'].map((origin) => view(origin, ['ch', 'fi', 'de']));
    const [qp, learned] = [planner(), planner(learnedPolicy(zeros()))];
    for (let slot = 0; slot < 5; slot++) {
      const [found, planned] = [rows(views, learned), rows(views, qp)];
      expect(found).toHaveLength(2);
      for (const [row, shares] of found.entries())
        for (const [region, share] of Object.entries(shares))
          expect(share).toBeCloseTo(planned[row]?.[region] ?? -1, 9);
    }
  });

  it('that prefers its own region raises the share of this region in each row', () => {
    const parameters = zeros();
    // The second feature is 1 for the pair of a region with itself. One unit of each layer carries it to α.
    const [inputs = 0, hidden = 0] = LAYERS;
    parameters[1] = 2;
    parameters[hidden * (inputs + 1)] = 2;
    parameters[hidden * (inputs + 1) + hidden * (hidden + 1)] = 20;
    const views = ['ch', 'fi'].map((origin) => view(origin, ['ch', 'fi']));
    const [first] = rows(views, planner(undefined, 2));
    const [learned] = rows(views, planner(learnedPolicy(parameters), 2));
    expect(learned?.ch).toBeGreaterThan(1.2 * (first?.ch ?? 1));
    expect((learned?.ch ?? 0) + (learned?.fi ?? 0)).toBeCloseTo(1, 9);
  });

  it('that was trained plans rows that sum to 1, also while regions come and go and a gateway has no region', () => {
    const trained = planner(learnedPolicy(readPolicyParameters(TRAINED)));
    const courses = [['ch', 'fi'], ['ch', 'fi', 'de'], ['fi'], ['ch', 'fi']];
    for (const regions of courses)
      for (const arrived of [0, 100, 1e6]) {
        const found = rows(
          ['', 'ch', 'it'].map((origin) => view(origin, regions, arrived)),
          trained,
        );
        expect(found).toHaveLength(3);
        for (const shares of found) {
          expect(Object.keys(shares).sort()).toEqual([...regions].sort());
          const values = Object.values(shares);
          expect(values.every((share) => share >= 0 && share <= 1)).toBe(true);
          expect(values.reduce((sum, share) => sum + share, 0)).toBeCloseTo(1, 9);
        }
      }
  });
});

describe('the file of a policy', () => {
  let folder: string;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'otela-policy-'));
  });
  afterEach(() => rmSync(folder, { recursive: true }));

  it.each<[string, (file: Record<string, unknown>) => unknown]>([
    ['of another format', (file) => ({ ...file, format: 'otela-regions-policy 1' })],
    ['of other features', (file) => ({ ...file, features: 15 })],
    ['with too few parameters', (file) => ({ ...file, parameters: String(file.parameters).slice(0, 400) })],
    ['with parameters that are no numbers', (file) => ({ ...file, parameters: nan(String(file.parameters)) })],
    ['with more in it', (file) => ({ ...file, code: 'x' })],
    ['that is a list', () => []],
    ['of two megabytes', (file) => ({ ...file, trained_on: 'x'.repeat(2 << 20) })],
  ])('%s is refused', (_, broken) => {
    const path = join(folder, 'policy.json');
    const file = JSON.parse(readFileSync(TRAINED, 'utf8')) as Record<string, unknown>;
    writeFileSync(path, JSON.stringify(file));
    expect(readPolicyParameters(path)).toHaveLength(zeros().length);
    writeFileSync(path, JSON.stringify(broken(file)));
    expect(() => readPolicyParameters(path)).toThrow(expect.objectContaining({ code: 'bad_input' }));
  });

  it('that is missing is said', () => {
    expect(() => readPolicyParameters(join(folder, 'none.json'))).toThrow(/none\.json is not a policy/);
  });
});

/** The same parameters, the first of which is NaN. */
function nan(parameters: string): string {
  const bytes = Buffer.from(parameters, 'base64');
  bytes.writeFloatLE(Number.NaN, 0);
  return bytes.toString('base64');
}
