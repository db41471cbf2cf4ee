/** Agents that gossip over real sockets, in one process. */
import { connect } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { createSessionKey } from '../../../agent/mesh/channel/session-key.ts';
import { bucketOf } from '../../../shared/lattice/replica-digest.ts';
import { sessionItemId } from '../../../shared/lattice/replica-entry.ts';
import { TestIssuer } from '../../support/mesh/issuer.ts';
import { Member } from '../../support/mesh/member.ts';
import { atEnd, endAll, eventually } from '../../support/processes.ts';
import { allMeet, allSee, createSeed, nextBirth, serving, sessionsOf, village, WITHIN_MS } from './village.ts';

afterEach(endAll);

/** A key seed with a session that falls into this bucket of the replica. */
function seedInBucket(issuer: TestIssuer, bucket: number, birth: number): Uint8Array {
  for (;;) {
    const seed = createSeed();
    const { session } = issuer.ticket(createSessionKey(seed).publicKey, { birth });
    if (bucketOf(sessionItemId(session)) === bucket) return seed;
  }
}

it('a newcomer whose own first word is all that differs is not left alone until the next round', async () => {
  const issuer = new TestIssuer();
  const start = async (peers: string[], birth: number) => {
    const seed = seedInBucket(issuer, 7, birth);
    const ticket = issuer.ticket(createSessionKey(seed).publicKey, { birth }).bytes;
    const listen = { host: '127.0.0.1', port: 0 };
    const member = new Member({ issuer: issuer.issuer, seed, ticket, listen, peers });
    atEnd(() => member.close());
    await member.open();
    return member;
  };
  const first = await start([], nextBirth());
  const second = await start(first.mesh.addresses, nextBirth());
  await eventually('both know both', 4_000, () =>
    [first, second].every((member) => serving(member).length === 2) ? true : undefined,
  );
});

describe('agents that know one of them', () => {
  it('find all of them and know what each serves', async () => {
    const { join } = village();
    const members = [await join(), await join(), await join(), await join()];
    await allSee(members, sessionsOf(members));
    const [a, b] = members;
    expect(b?.mesh.addresses).toHaveLength(1);
    expect(a?.mesh.replica.get(b?.session ?? '')?.payload?.addresses).toEqual(b?.mesh.addresses);
  });

  it('hear of a change, and of a departure', async () => {
    const { join } = village();
    const [a, b, c] = [await join(), await join(), await join()];
    await allSee([a, b, c], sessionsOf([a, b, c]));
    b.say('DOWN');
    await allSee([a, b, c], sessionsOf([a, c]));
    b.say('LEFT');
    await eventually('LEFT everywhere', WITHIN_MS, () =>
      [a, c].every(({ mesh }) => mesh.replica.get(b.session)?.state === 'LEFT') ? true : undefined,
    );
  });

  it('hear the last word of one that goes in the same moment', async () => {
    const { join } = village();
    const [a, b, c] = [await join(), await join(), await join()];
    await allSee([a, b, c], sessionsOf([a, b, c]));
    b.say('LEFT');
    b.close();
    await eventually('LEFT everywhere', WITHIN_MS, () =>
      [a, c].every(({ mesh }) => mesh.replica.get(b.session)?.state === 'LEFT') ? true : undefined,
    );
  });

  it('that is not there yet are found when it comes', async () => {
    const { join } = village();
    const late = await join();
    const address = late.mesh.addresses[0] ?? '';
    const port = Number(address.split(':')[1]);
    late.close();
    const told: string[] = [];
    const early = await join({ peers: [address], more: { log: (line) => told.push(line) } });
    await eventually('says that nobody is there', WITHIN_MS, () => (told.length > 0 ? true : undefined));
    const again = await join({ listen: { host: '127.0.0.1', port }, peers: [] });
    await allSee([early, again], sessionsOf([early, again]));
    expect(told, 'says it once').toHaveLength(1);
  });

  it('of one provider or another, of one cluster or another, all know each other', async () => {
    const { join } = village();
    const [a, b] = [await join({ cluster: 'alps' }), await join({ cluster: 'jura', provider: 'other' })];
    await allSee([a, b], sessionsOf([a, b]));
    expect((await a.mesh.channelTo(b.session)).provider).toBe('other');
  });

  it('miss one that ends without a word, at once, where a gateway cannot reach it either', async () => {
    const { join } = village();
    const more = { askGateway: () => Promise.resolve('silent' as const) };
    const members = [await join({ more }), await join({ more }), await join({ more }), await join({ more })];
    await allSee(members, sessionsOf(members));
    await allMeet(members);
    const [gone, ...others] = members;
    if (gone === undefined) throw new Error('no member');
    // Like a killed process: its sockets end, and it sends nothing.
    for (const channel of gone.mesh.channels) channel.destroy('killed');
    gone.close();
    await allSee(others, sessionsOf(others));
  });

  it('do not believe in the end of one that a gateway still reaches', async () => {
    const { join } = village();
    const asked: string[] = [];
    const askGateway = (session: string) => {
      asked.push(session);
      return Promise.resolve('alive' as const);
    };
    const members = [
      await join({ more: { askGateway } }),
      await join({ more: { askGateway } }),
      await join({ more: { askGateway } }),
    ];
    await allSee(members, sessionsOf(members));
    await allMeet(members);
    const [cutOff, ...others] = members;
    if (cutOff === undefined) throw new Error('no member');
    for (const channel of cutOff.mesh.channels) channel.destroy('cut');
    cutOff.close();
    await eventually('the gateway is asked', WITHIN_MS, () => (asked.includes(cutOff.session) ? true : undefined));
    await eventually('not from here', WITHIN_MS, () =>
      others.every(({ mesh }) => mesh.liveness(cutOff.session) === 'unreachable') ? true : undefined,
    );
  });
});

describe('a channel for requests', () => {
  it('is the one there is, or a new one to where the session says that it listens', async () => {
    const { join } = village();
    const [a, b] = [await join(), await join()];
    await allSee([a, b], sessionsOf([a, b]));
    const channel = await a.mesh.channelTo(b.session);
    expect(await a.mesh.channelTo(b.session)).toBe(channel);
    a.mesh.channels.hangUp(b.session, 'test');
    const both = await Promise.all([a.mesh.channelTo(b.session), a.mesh.channelTo(b.session)]);
    expect(both[0]).toBe(both[1]);
    expect(both[0]?.session).toBe(b.session);
  });

  it('cannot be opened to a session that is unknown or listens nowhere', async () => {
    const { join } = village();
    const [a, silent] = [await join(), await join({ listen: undefined })];
    await allSee([a, silent], sessionsOf([a, silent]));
    a.mesh.channels.hangUp(silent.session, 'test');
    await expect(a.mesh.channelTo('a'.repeat(26))).rejects.toMatchObject({ code: 'unreachable' });
    await expect(a.mesh.channelTo(silent.session)).rejects.toMatchObject({ code: 'unreachable' });
  });

  it('refuses requests if no engine serves them', async () => {
    const { join } = village();
    const frames: string[] = [];
    const requests = {
      onChannel: () => {},
      onFrame: (_: unknown, frame: { type: string }) => void frames.push(frame.type),
      onMessageEnd: () => {},
      onChannelClosed: () => {},
    };
    const [a, b] = [await join({ more: { requests } }), await join()];
    await allSee([a, b], sessionsOf([a, b]));
    (await a.mesh.channelTo(b.session)).link.put({
      type: 'open',
      stream: 1,
      resume: false,
      requestId: 'r',
      attempt: 0,
      answerOffset: 0,
      endpoint: 0,
      headers: [],
      edits: [],
      streaming: false,
      dropUsage: false,
      firstByteMs: 0,
      stallMs: 0,
      receipt: '',
      bodyLength: 0,
    });
    await eventually('refused', WITHIN_MS, () => (frames.includes('reset') ? true : undefined));
  });
});

describe('a stranger', () => {
  it('with a ticket of an issuer that is not listed is not let in, and is told nothing', async () => {
    const { join } = village();
    const a = await join();
    const foreign = await join({ issuer: new TestIssuer() });
    const other = await join();
    await allSee([a, other], sessionsOf([a, other]));
    expect(a.mesh.replica.get(foreign.session)).toBeUndefined();
    expect(foreign.mesh.replica.get(a.session)).toBeUndefined();
    expect(a.mesh.channels.get(foreign.session)).toBeUndefined();
  });

  it('with a session that was evicted is told so, and its session ends', async () => {
    const { join, issuer } = village();
    const [a, b, c] = [await join(), await join(), await join()];
    await allSee([a, b, c], sessionsOf([a, b, c]));
    a.mesh.publish(issuer.eviction(b.session));
    await eventually('b knows', WITHIN_MS, () => (b.ended.length > 0 ? true : undefined));
    expect(b.ended).toEqual(['evicted']);
    await allSee([a, c], sessionsOf([a, c]));
  });

  it('and talks rubbish is thrown out and not let in again; the others do not notice', async () => {
    const { join } = village();
    const [a, b, rude] = [await join(), await join(), await join()];
    await allSee([a, b, rude], sessionsOf([a, b, rude]));
    const channel = await rude.mesh.channelTo(a.session);
    channel.gossip(Buffer.from('rubbish'));
    await eventually('thrown out', WITHIN_MS, () => (channel.closed ? true : undefined));
    await expect(
      rude.mesh
        .channelTo(a.session)
        .then((again) => eventually('closed', 2_000, () => (again.closed ? true : undefined))),
    ).rejects.toThrow(/ended during the handshake/);
    b.say('DOWN');
    await eventually('a hears b', WITHIN_MS, () =>
      a.mesh.replica.get(b.session)?.state === 'DOWN' ? true : undefined,
    );
  });

  it('connects and says nothing while the mesh closes: closing does not wait for him', async () => {
    const { join } = village();
    const a = await join();
    const socket = connect(Number(a.mesh.addresses[0]?.split(':')[1]), '127.0.0.1');
    await new Promise((resolve) => socket.once('connect', resolve));
    const closed = new Promise((resolve) => socket.once('close', resolve));
    socket.on('error', () => {});
    a.close();
    a.close();
    await closed;
  });
});
