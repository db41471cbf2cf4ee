import { createExecutionContext } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { expect, test } from 'vitest';
import { z } from 'zod';
import worker from '../../../gateway/index.ts';
import { workerdCrypto, workerdSigner } from '../../../gateway/issuer/ed25519.ts';
import { toBase64url } from '../../../shared/lattice/base64url.ts';
import { hex } from '../../../shared/lattice/byte-codec.ts';
import { attestationMessage, type ReleaseManifest, releaseMessage } from '../../../shared/release/release-manifest.ts';
import { seedToken } from './agent.ts';

const releaser = workerdSigner();
const stranger = workerdSigner();
const AGENT = hex(workerdCrypto.sha256(new TextEncoder().encode('the agent')));
const OTHER = hex(workerdCrypto.sha256(new TextEncoder().encode('another program')));

function release(signer = releaser, more: Partial<ReleaseManifest> = {}) {
  const files = [{ path: 'dist/otela-agent.js', sha256: AGENT }];
  const manifest = JSON.stringify({
    otela_release: 1,
    version: '1.2.3',
    built_at: '2026-11-20T00:00:00Z',
    files,
    ...more,
  });
  return { manifest, signature: toBase64url(signer.sign(releaseMessage(manifest))) };
}

const STRICT = { REQUIRE_SIGNED_AGENT: 'on', RELEASE_KEYS: toBase64url(releaser.publicKey) };
const said = z.object({
  error: z.object({ message: z.string(), code: z.string() }).optional(),
  challenge: z.string().optional(),
  session: z.string().optional(),
});

async function knock(token: string, body: object, given: object = STRICT) {
  const request = new Request('https://gateway.test/agent/admit', {
    method: 'POST',
    headers: { authorization: `Bearer ${token}` },
    body: JSON.stringify({ protocol: 2, ...body }),
  });
  const response = await worker.fetch(request, { ...env, ...given }, createExecutionContext());
  return { status: response.status, ...said.parse(await response.json()) };
}

/** An agent's two requests; `lie` changes the second one. */
async function join({
  given = release(),
  digest = AGENT,
  lie = (body: object): object => body,
  rules = STRICT as object,
}: {
  given?: { manifest: string; signature: string } | undefined;
  digest?: string;
  lie?: (body: object) => object;
  rules?: object;
} = {}) {
  const { token } = await seedToken();
  const signer = workerdSigner();
  const first = { public_key: toBase64url(signer.publicKey), release: given };
  const { challenge, ...refused } = await knock(token, first, rules);
  if (challenge === undefined) return refused;
  const signature = toBase64url(signer.sign(attestationMessage(challenge, given.manifest, digest, workerdCrypto)));
  return knock(token, lie({ ...first, attestation: { challenge, digest, signature } }), rules);
}

test('an agent of a signed release is let in, once it has answered the challenge', async () => {
  const { token } = await seedToken();
  const asked = await knock(token, { public_key: toBase64url(workerdSigner().publicKey), release: release() });
  expect(asked).toMatchObject({ status: 428, error: { code: 'attestation_required' } });
  expect(await join()).toMatchObject({ status: 200, session: expect.any(String) });
});

test('each form of the agent is the agent of its release, and no other file of it is', async () => {
  const files = ['otela-agent-linux-x64', 'otela-agent-linux-arm64', 'dist/otela-gateway.js'].map((path, index) => ({
    path,
    sha256: hex(workerdCrypto.sha256(Uint8Array.of(index))),
  }));
  const statuses = await Promise.all(
    files.map(async ({ sha256 }) => (await join({ given: release(releaser, { files }), digest: sha256 })).status),
  );
  expect(statuses).toEqual([200, 200, 403]);
});

test('where releases are not asked for, nothing is', async () => {
  for (const off of [{}, { REQUIRE_SIGNED_AGENT: 'off' }, { REQUIRE_SIGNED_AGENT: '0' }]) {
    const { token } = await seedToken();
    const body = { public_key: toBase64url(workerdSigner().publicKey) };
    expect((await knock(token, body, { RELEASE_KEYS: STRICT.RELEASE_KEYS, ...off })).status).toBe(200);
  }
});

test.each([
  ['a manifest that a stranger signed', { given: release(stranger) }, 'not signed by a trusted release key'],
  [
    'a manifest changed after it was signed',
    { given: { ...release(), manifest: release().manifest.replace('1.2.3', '1.2.4') } },
    'not signed by a trusted release key',
  ],
  ['a signed text that is no manifest', { given: release(releaser, { files: undefined as never }) }, 'cannot be read'],
  ['a program that is not the one of the release', { digest: OTHER }, 'not the agent of release 1.2.3'],
  ['a release of 2020', { given: release(releaser, { version: '0.0.1' }) }, 'release 0.0.1 is older than 0.1.0'],
  [
    'a release below the floor that the operator set',
    { rules: { ...STRICT, OLDEST_AGENT: '1.3.0' } },
    'release 1.2.3 is older than 1.3.0',
  ],
  [
    'a version that cannot be compared',
    { given: release(releaser, { version: 'newest' }) },
    'release newest is older than 0.1.0',
  ],
  ['a floor that is no version', { rules: { ...STRICT, OLDEST_AGENT: 'new' } }, 'OLDEST_AGENT'],
  ['a release without an agent', { given: release(releaser, { files: [] }) }, 'not the agent'],
  ['no release keys', { rules: { REQUIRE_SIGNED_AGENT: 'on' } }, 'RELEASE_KEYS'],
  [
    'a list of keys with one that is none',
    { rules: { ...STRICT, RELEASE_KEYS: `${STRICT.RELEASE_KEYS},x` } },
    'RELEASE_KEYS',
  ],
])('%s: refused, and the reason is told', async (_, how, why) => {
  const { status, error } = await join(how);
  expect([status, error?.code]).toEqual([403, 'permission_denied']);
  expect(error?.message).toContain(why);
});

test('without a manifest an agent is told that it runs from no release', async () => {
  const { token } = await seedToken();
  const { status, error } = await knock(token, { public_key: toBase64url(workerdSigner().publicKey) });
  expect([status, error?.code]).toEqual([403, 'permission_denied']);
});

test('an answer is of no use on another node, with another key or with another digest', async () => {
  const thief = workerdSigner();
  const copied = await join({ lie: (body) => ({ ...body, public_key: toBase64url(thief.publicKey) }) });
  expect([copied.status, copied.error?.code]).toEqual([403, 'permission_denied']);
  const attestation = z.object({
    attestation: z.object({ challenge: z.string(), digest: z.string(), signature: z.string() }),
  });
  const changed = (more: object) => (body: object) => ({
    ...body,
    attestation: { ...attestation.parse(body).attestation, ...more },
  });
  const digest = await join({ digest: OTHER, lie: changed({ digest: AGENT }) });
  expect([digest.status, digest.error?.code]).toEqual([403, 'permission_denied']);
  const forged = await join({ lie: changed({ challenge: 'AAAA.AAAA' }) });
  expect([forged.status, forged.error?.code]).toEqual([403, 'permission_denied']);
});

test('a challenge ends after a minute of the gateway’s clock', async () => {
  const { requireRelease } = await import('../../../gateway/registry/attest-release.ts');
  const signer = workerdSigner();
  const publicKey = toBase64url(signer.publicKey);
  const given = release();
  const ask = (claim: object, now: number) =>
    requireRelease(
      { ...env, ...STRICT },
      signer.publicKey,
      publicKey,
      { release: given, attestation: undefined, ...claim },
      { minimum: undefined, now },
    );
  const challenge = (await ask({}, 1_000_000)) ?? '';
  const signature = toBase64url(signer.sign(attestationMessage(challenge, given.manifest, AGENT, workerdCrypto)));
  const attestation = { challenge, digest: AGENT, signature };
  expect(await ask({ attestation }, 1_059_000)).toBeUndefined();
  await expect(ask({ attestation }, 1_061_000)).rejects.toThrow('too late');
});

test('a refused agent has not used up its join token', async () => {
  const { token, id } = await seedToken();
  await knock(token, { public_key: toBase64url(workerdSigner().publicKey), release: release(stranger) });
  const row = await env.DB.prepare('SELECT nodes FROM join_tokens WHERE id = ?').bind(id).first();
  expect(row).toEqual({ nodes: 0 });
});

test('/readyz says whether agents have to show a release', async () => {
  const ready = async (given: object) => {
    const request = new Request('https://gateway.test/readyz');
    return (await worker.fetch(request, { ...env, ...given }, createExecutionContext())).json();
  };
  expect(await ready({})).toMatchObject({ signed_agents: { required: false, keys: 0 } });
  expect(await ready(STRICT)).toMatchObject({ signed_agents: { required: true, keys: 1 } });
});
