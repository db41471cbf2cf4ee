import fc from 'fast-check';
import { afterEach, expect, it } from 'vitest';
import { AvoidedNodes } from '../../../agent/ingress/avoided-nodes.ts';
import { chooseNode } from '../../../shared/routing/choose-node.ts';
import { NodeIndex } from '../../../shared/routing/node-index.ts';
import { randomPolicy } from '../../../shared/routing/policies/random.ts';
import { parseRequirements } from '../../../shared/routing/requirements.ts';
import { decideTrust, providerId } from '../../../shared/routing/trusted-providers.ts';
import { RESUME_WINDOW_MS } from '../../../shared/wire/protocol-constants.ts';
import { endAll } from '../../support/processes.ts';
import { chatBody, envelopeOf, MODEL } from '../../support/test-cluster.ts';
import { entryOf, Village } from './village.ts';

afterEach(endAll);

it('trusts its own provider alone unless it is told otherwise', async () => {
  const village = new Village();
  const here = await village.add({ engine: false });
  const stranger = await village.add({ provider: 'other', serveTo: ['lab'] });
  const response = await here.ask('/chat/completions', chatBody());
  expect(response.status).toBe(503);
  const error = await envelopeOf(response);
  expect(error.code).toBe('no_capacity');
  expect(error.message).toContain('--trust');
  expect(stranger.engine?.requests.length).toBe(0);
  expect(village.dialled).toBe(0);
  const models: unknown = await (await here.ask('/models')).json();
  expect(models).toEqual({ object: 'list', data: [] });
});

it('--trust names whom to ask, and a request may narrow it but never widen it', async () => {
  const village = new Village();
  const here = await village.add({ engine: false, trust: ['lab', 'other'] });
  await village.add();
  const other = await village.add({ provider: 'other', serveTo: ['lab'] });
  const third = await village.add({ provider: 'third', serveTo: ['lab'] });
  const ask = (providers: string) =>
    here.ask('/chat/completions', chatBody(), { headers: { 'x-otela-trusted-providers': providers } });
  for (let n = 0; n < 5; n++) expect((await ask('other')).headers.get('x-otela-provider')).toBe('other');
  expect((await ask('third')).status).toBe(403);
  expect((await ask('')).status).toBe(403);
  expect((await ask('other, third')).headers.get('x-otela-node')).toBe(other.session);
  expect((await ask('No Such!')).status).toBe(400);
  const narrowed = chatBody({}, { metadata: { otela_trusted_providers: 'other' } });
  expect((await here.ask('/chat/completions', narrowed)).headers.get('x-otela-provider')).toBe('other');
  expect(third.engine?.requests.length).toBe(0);
});

it('a node refuses agents of providers that it does not serve, and says why', async () => {
  const village = new Village();
  const here = await village.add({ engine: false, trust: ['other'] });
  const there = await village.add({ provider: 'other' });
  const refused = await here.ask('/chat/completions', chatBody());
  expect(refused.status).toBe(503);
  expect((await envelopeOf(refused)).message).toContain('does not serve agents of lab (--serve-to)');
  expect(there.engine?.requests.length).toBe(0);
  there.serveTo.push('lab');
  expect((await here.ask('/chat/completions', chatBody())).status).toBe(200);
});

it('many nodes that refuse do not keep a request from the one that serves', async () => {
  const village = new Village();
  const here = await village.add({ engine: false, trust: ['lab', 'other'] });
  for (let n = 0; n < 10; n++) await village.add({ provider: 'other', engine: { models: [MODEL] } });
  const lab = await village.add();
  for (let n = 0; n < 5; n++) {
    const response = await here.ask('/chat/completions', chatBody());
    expect([response.status, response.headers.get('x-otela-node')]).toEqual([200, lab.session]);
  }
  expect(village.dialled).toBeLessThanOrEqual(11);
});

it('a name used by another issuer is not the same provider', async () => {
  const village = new Village();
  const here = await village.add({ engine: false });
  const abroad = await village.add({ provider: 'lab', issuer: 'peer' });
  expect((await here.ask('/chat/completions', chatBody())).status).toBe(503);
  expect(abroad.engine?.requests.length).toBe(0);
});

it('requirements are obeyed, and unmet ones are 412', async () => {
  const village = new Village();
  const here = await village.add({ engine: false });
  const [small, large] = [await village.add(), await village.add()];
  const gpu = { class: 'GH200', name: 'NVIDIA GH200 480GB', vram_mib: 97_871 };
  village.publish({ ...large.entry, hardware: { ...large.entry.hardware, gpus: [gpu] } });
  const ask = (require: string) =>
    here.ask('/chat/completions', chatBody(), { headers: { 'x-otela-require': require } });
  for (let n = 0; n < 5; n++) expect((await ask('gpu=GH200')).headers.get('x-otela-node')).toBe(large.session);
  expect((await envelopeOf(await ask('gpu=H100'))).code).toBe('requirement_not_met');
  expect((await envelopeOf(await ask('colour=red'))).code).toBe('invalid_requirement');
  expect(small.engine?.requests.length).toBe(0);
});

const NAMES = ['lab', 'eth', 'psi'];
const node = fc.record({
  provider: fc.constantFrom(...NAMES),
  issuer: fc.constantFrom('local', 'peer', 'cern'),
  suspected: fc.boolean(),
  tier: fc.constantFrom('stable' as const, 'volatile' as const),
});
const list = fc.array(fc.constantFrom(...NAMES, 'lab@peer', 'eth@cern'), { maxLength: 4 });

it('no choice is ever outside the trust set or short of the requirements, on any attempt', () => {
  fc.assert(
    fc.property(
      fc.array(node, { maxLength: 12 }),
      fc.array(list, { minLength: 1, maxLength: 3 }),
      fc.array(fc.nat(11), { maxLength: 8 }),
      fc.boolean(),
      fc.double({ min: 0, max: 0.999, noNaN: true }),
      (nodes, lists, avoidedOnes, stable, luck) => {
        const index = new NodeIndex();
        const entries = nodes.map((one, n) => ({
          ...entryOf('abcdefghijkl'[n]?.repeat(26) ?? '', one.provider, one.issuer, [MODEL]),
          suspected: one.suspected,
          tier: one.tier,
        }));
        for (const entry of entries) index.put(entry);
        const avoided = new AvoidedNodes();
        const now = Date.now();
        for (const n of avoidedOnes) avoided.add('abcdefghijkl'[n]?.repeat(26) ?? '', now + 1_000);
        const trust = decideTrust({ own: 'local', lists, defaults: [], deleted: new Set(), policies: [] });
        const require = stable ? parseRequirements('tier=stable') : [];
        const demand = { require, prefer: [], words: stable ? 'tier=stable' : '' };
        const allowed = new Set(
          entries
            .filter((entry) => lists.every((ids) => ids.includes(providerId(entry, 'local'))))
            .filter(({ tier }) => !stable || tier === 'stable')
            .map(({ session }) => session),
        );
        const tried = new Set<string>();
        for (;;) {
          const choice = chooseNode(
            index,
            {
              request: { model: MODEL, priority: 'interactive', inputTokens: 1 },
              fallbacks: [],
              trust,
              demand,
              policyFor: () => randomPolicy,
              avoided: new Set(avoided.sessions(now)),
              lostLatelyMs: RESUME_WINDOW_MS,
              now,
              random: () => luck,
            },
            tried,
          );
          if (choice === undefined) break;
          expect(allowed.has(choice.node.session)).toBe(true);
          expect(tried.has(choice.node.session)).toBe(false);
          tried.add(choice.node.session);
        }
        expect(tried.size).toBeGreaterThanOrEqual(
          entries.some(({ session, suspected }) => allowed.has(session) && !suspected) ? 1 : 0,
        );
      },
    ),
  );
});
