/** Agents that ask each other for a signed release before they share a channel. */
import { generateKeyPairSync, sign } from 'node:crypto';
import { afterEach, describe, expect, it } from 'vitest';
import type { PeerReleases, ShownRelease } from '../../../agent/mesh/channel/peer-release.ts';
import { PROOF_MAX_BYTES } from '../../../agent/mesh/channel/peer-release.ts';
import { type ReleaseRules, releaseMessage } from '../../../shared/release/release-manifest.ts';
import { endAll } from '../../support/processes.ts';
import { byHand } from './by-hand.ts';
import { identity, NO_RELEASES, Node } from './node.ts';

afterEach(endAll);

const DIGEST = 'ab'.repeat(32);

function releaser() {
  const { privateKey, publicKey } = generateKeyPairSync('ed25519');
  const raw = publicKey.export({ format: 'der', type: 'spki' }).subarray(-32);
  const release = (version = '0.3.0', sha256 = DIGEST): ShownRelease => {
    const files = [{ path: 'dist/otela-agent.js', sha256 }];
    const manifest = JSON.stringify({ otela_release: 1, version, built_at: '2026-11-20T00:00:00Z', files });
    const signature = sign(null, releaseMessage(manifest), privateKey).toString('base64url');
    return { manifest, signature, digest: DIGEST };
  };
  return { release, rules: (oldest = '0.2.0'): ReleaseRules => ({ keys: [raw], oldest }) };
}

const start = (releases: PeerReleases) => Node.start(identity(), {}, 64, releases);

/** Dials in both directions, and returns how many of the two channels were made. */
async function channels(a: Node, b: Node): Promise<number> {
  const tries = [await a.dial(b, b.own.session).catch(String), await b.dial(a, a.own.session).catch(String)];
  return tries.filter((one) => typeof one === 'object').length;
}

describe('an agent that requires releases of its peers', () => {
  it('shares a channel with a peer of such a release, whichever end dials and whichever end requires it', async () => {
    const { release, rules } = releaser();
    const both = { own: release(), required: rules() };
    const [strict, other, lax] = await Promise.all([
      start(both),
      start(both),
      start({ own: release(), required: undefined }),
    ]);
    const first = await strict.dial(other, other.own.session);
    await other.log.heard(`opened ${strict.own.session}`);
    first?.gossip(Buffer.from('after the proofs'));
    await other.log.heard('gossip after the proofs');
    await strict.dial(lax, lax.own.session);
    await lax.log.heard(`opened ${strict.own.session}`);
    const [again] = [await start({ own: release(), required: undefined })];
    await again.dial(strict, strict.own.session);
    await strict.log.heard(`opened ${again.own.session}`);
  });

  it.each<[string, (made: ReturnType<typeof releaser>) => ShownRelease | undefined, RegExp]>([
    ['from a clone', () => undefined, /not installed from a release/],
    ['older than the floor', ({ release }) => release('0.1.9'), /older than 0.2.0/],
    ['signed by a stranger', () => releaser().release(), /not signed by a trusted release key/],
    ['whose file was changed', ({ release }) => release('0.3.0', 'cd'.repeat(32)), /its file was changed/],
    ['that shows nonsense', ({ release }) => ({ ...release(), manifest: '{' }), /not signed by a trusted release key/],
  ])('refuses a peer %s', async (_, shown, why) => {
    const made = releaser();
    const strict = await start({ own: made.release(), required: made.rules() });
    const peer = await start({ own: shown(made), required: undefined });
    await expect(strict.dial(peer, peer.own.session)).rejects.toMatchObject({ code: 'unsigned', message: why });
    // The peer learns of the refusal by the end of its connection.
    await peer.log.heard(`closed ${strict.own.session} the peer closed the connection`);
    await peer.dial(strict, strict.own.session);
    await peer.log.heard(`closed ${strict.own.session} the peer closed the connection`, 2);
    expect(peer.channels.size).toBe(0);
    expect(strict.channels.size).toBe(0);
    expect(strict.log.lines).toEqual([]);
  });

  it('reads no more than a release has, and waits no longer than for a handshake', async () => {
    const { release, rules } = releaser();
    const strict = await Node.start(identity(), { handshakeMs: 300 }, 64, { own: release(), required: rules() });
    for (const bytes of [(PROOF_MAX_BYTES + 1).toString(16).padStart(8, '0'), '00000008']) {
      const { socket } = await byHand(strict, identity(), false);
      const ended = new Promise((resolve) => socket.resume().once('close', resolve));
      socket.write(Buffer.from(bytes, 'hex'));
      await ended;
    }
    expect(strict.channels.size).toBe(0);
  });
});

it('agents that require nothing show nothing', async () => {
  const { release } = releaser();
  const [a, b] = await Promise.all([start({ own: release(), required: undefined }), start(NO_RELEASES)]);
  expect(await channels(a, b)).toBe(2);
});
