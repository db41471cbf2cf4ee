import { describe, expect, it } from 'vitest';
import { appendixD } from '../../../research/papers/oserve/assignment-claims.ts';
import { boundClaims } from '../../../research/papers/oserve/bound-claims.ts';
import { boundOf, boundsOf } from '../../../research/papers/oserve/bound-runs.ts';
import { lately, POLICIES, runPolicies } from '../../../research/papers/oserve/policies.ts';
import { searchClaims } from '../../../research/papers/oserve/search-claims.ts';
import type { Section } from '../../../research/papers/oserve/section.ts';
import { asJudged, setupOf } from '../../../research/papers/oserve/setups.ts';

const missed = ({ rows }: Section) => rows.filter(({ holds }) => !holds);

describe("OServe's claims", () => {
  it('of Appendix D hold with 100 requests of both kinds', async () => {
    expect(missed(await appendixD())).toEqual([]);
  });

  it('of the search hold: 861 and 474 deployments, within 6 % of the best, in seconds', () => {
    expect(missed(searchClaims({ quick: true }))).toEqual([]);
  });

  it('have a bound: no sequence of deployments that was not tried, and none of ours, is better', () => {
    const { rows, text } = boundClaims(boundsOf(true).map(boundOf));
    const of = (claim: string) => rows.find((one) => one.claim.startsWith(claim))?.ours ?? Number.NaN;
    expect(of('P99 of static over the least')).toBeGreaterThanOrEqual(1);
    expect(of('P99 of ours over the least')).toBeGreaterThanOrEqual(0.97);
    // All pairs of the ten deployments of four GPUs, four of which have two ways to send requests.
    const [tried = 0] = (text ?? '').match(/(?<=span 2\s+)\d+/)?.map(Number) ?? [];
    expect(tried).toBe(14 ** 2);
  });

  it('are compared on runs in which no way to serve loses a request', () => {
    const setup = setupOf({ model: 'facebook/opt-30b', gpus: 8, trace: 'azure', span: 4 });
    const results = runPolicies(setup);
    for (const name of POLICIES) expect(results[name], name).toMatchObject({ unanswered: 0 });
  });

  it('are of planners that see kinds as a gateway judges them at arrival', () => {
    const setup = setupOf({ model: 'facebook/opt-30b', gpus: 4, trace: 'azure', span: 3 });
    const told = asJudged(setup);
    const total = ({ before }: typeof setup) => before.counts.flat().reduce((sum, one) => sum + one, 0);
    expect(told.kinds).toEqual(setup.judged);
    expect(total(told)).toBe(total(setup));
    expect(told.table.kinds.map(({ name }) => name)).toEqual(setup.table.kinds.map(({ name }) => name));
    const wrong = setup.judged.filter((kind, i) => kind !== setup.kinds[i]).length / setup.judged.length;
    expect(wrong).toBeGreaterThan(0.05);
    expect(wrong).toBeLessThan(0.25);
    // The operator's minutes before the span are the end of the past, and no request of the span.
    expect(lately(setup).requests.count).toBeGreaterThan(0);
    expect(lately(setup).requests.arrival.at(-1)).toBeLessThan(600);
  });
});
