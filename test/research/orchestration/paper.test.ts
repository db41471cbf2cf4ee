import { describe, expect, it } from 'vitest';
import { appendixD } from '../../../research/papers/oserve/assignment-claims.ts';
import { POLICIES, runPolicies } from '../../../research/papers/oserve/policies.ts';
import { searchClaims } from '../../../research/papers/oserve/search-claims.ts';
import type { Section } from '../../../research/papers/oserve/section.ts';
import { setupOf } from '../../../research/papers/oserve/setups.ts';

const missed = ({ rows }: Section) => rows.filter(({ holds }) => !holds);

describe("OServe's claims", () => {
  it('of Appendix D hold with 100 requests of both kinds', async () => {
    expect(missed(await appendixD())).toEqual([]);
  });

  it('of the search hold: 861 and 474 deployments, within 6 % of the best, in seconds', () => {
    expect(missed(searchClaims({ quick: true }))).toEqual([]);
  });

  it('are compared on runs in which no way to serve loses a request', () => {
    const setup = setupOf({ model: 'facebook/opt-30b', gpus: 8, trace: 'azure', span: 4 });
    const results = runPolicies(setup);
    for (const name of POLICIES) expect(results[name], name).toMatchObject({ unanswered: 0 });
  });
});
