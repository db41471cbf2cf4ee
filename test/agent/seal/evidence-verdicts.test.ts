/**
 * How long a client trusts its verifier's verdict about a node, and which part of it applies to other callers. The node
 * is an opener in this process.
 */
import { beforeEach, expect, it } from 'vitest';
import { KeyRing } from '../../../agent/seal/seal-key-ring.ts';
import { SealOpener } from '../../../agent/seal/seal-opener.ts';
import { type EvidenceVerifier, VerdictCache } from '../../../clients/seal/evidence-verdicts.ts';
import { endpointById } from '../../../shared/openai/endpoints.ts';
import { EVIDENCE_PATH } from '../../../shared/seal/attestation-evidence.ts';
import { SEALED_TYPE } from '../../../shared/seal/hpke-suite.ts';

const [chat] = [endpointById(1)];
const ring = new KeyRing(Date.now);
const opener = new SealOpener(ring, Date.now);
const { kid, publicKey, until } = ring.current;
const node = {
  session: 's',
  provider: 'eth',
  mode: 'pinned' as const,
  kid,
  key: new Uint8Array(publicKey),
  until,
  evidence: ['tdx'],
};
const answer = JSON.stringify({ object: 'otela.evidence', kinds: ['tdx'], evidence: 'eA==' });

let [asked, passed, now] = [0, 0, 0];
beforeEach(() => {
  [asked, passed, now] = [0, 0, Date.now()];
});

/** The gateway: answers 401 if the key is not `good`, otherwise asks the node. */
const gateway: typeof fetch = async (_, init) => {
  passed++;
  const headers = new Headers(init?.headers);
  if (headers.get('authorization') !== 'good') return new Response('{}', { status: 401 });
  asked++;
  if (chat === undefined || !(init?.body instanceof Uint8Array)) throw new Error('nothing sealed');
  const { sealer } = opener.open(
    { headers: [...headers], endpoint: { ...chat, path: EVIDENCE_PATH }, streaming: false },
    init.body,
  );
  sealer.head(200, [], false);
  const frames = [sealer.chunk(Buffer.from(answer)), sealer.final()];
  return new Response(Buffer.concat(frames), { headers: { 'content-type': SEALED_TYPE } });
};

const asking = (authorization: string) => ({ base: 'http://gateway', model: 'm', headers: { authorization } });
const judging = (verify: EvidenceVerifier['verify']) => new VerdictCache({ verify }, gateway, () => now);

it('a node that the verifier refused is not asked again before five minutes are over, by any caller', async () => {
  const nodes = judging(() => false);
  for (let n = 0; n < 3; n++)
    await expect(nodes.among([node], 3, asking('good'))).rejects.toThrow('rejected the evidence of all nodes');
  await expect(nodes.among([node], 3, asking('other'))).rejects.toThrow();
  expect(passed).toBe(1);
  now += 5 * 60_000;
  await expect(nodes.among([node], 3, asking('good'))).rejects.toThrow();
  expect(asked).toBe(2);
});

it('a caller whose key the gateway refuses keeps no other one from the node', async () => {
  const nodes = judging(() => true);
  const refused = await Promise.allSettled([1, 2, 3].map(() => nodes.among([node], 3, asking('bad'))));
  expect(refused.map(({ status }) => status)).toEqual(['rejected', 'rejected', 'rejected']);
  expect(passed).toBe(1);
  expect(await nodes.among([node], 3, asking('good'))).toEqual([node]);
  expect(await nodes.among([node], 3, asking('bad'))).toEqual([node]);
  expect(asked).toBe(1);
});

it('a verifier that fails is asked again ten seconds later', async () => {
  let fails = true;
  const nodes = judging(() => (fails ? Promise.reject(new Error('no certificates')) : true));
  const why = await nodes.among([node], 3, asking('good')).catch((error: unknown) => error);
  expect(why).toMatchObject({ code: 'no_candidate', cause: { message: 'no certificates' } });
  fails = false;
  now += 9_999;
  await expect(nodes.among([node], 3, asking('good'))).rejects.toMatchObject({ cause: { message: 'no certificates' } });
  now += 1;
  expect(await nodes.among([node], 3, asking('good'))).toEqual([node]);
  now += 24 * 3_600_000;
  expect(await nodes.among([node], 3, asking('good'))).toEqual([node]);
  expect(asked).toBe(2);
});

it('remembers no more than 256 verdicts', async () => {
  const nodes = judging(() => true);
  for (let n = 0; n < 257; n++) await nodes.among([node], 3, asking(`bad ${n}`)).catch(() => {});
  await nodes.among([node], 3, asking('bad 256')).catch(() => {});
  expect(passed).toBe(257);
  await nodes.among([node], 3, asking('bad 0')).catch(() => {});
  expect(passed).toBe(258);
});
