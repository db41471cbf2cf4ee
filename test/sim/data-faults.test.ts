import { describe, expect, it } from 'vitest';
import { encodeUpdate } from '../../shared/lattice/registry-update.ts';
import { standInSigner } from './crypto.ts';
import { EPOCH_S, Membership } from './issuer.ts';
import { everywhere, evicted, notices, said, session } from './observe.ts';
import { World } from './world.ts';

function settled(clusters: number[], seed = 31): World {
  const world = new World({ seed, clusters });
  world.run(12_000);
  return world;
}

describe('clocks that are wrong', () => {
  it('change nothing: no order, no collection and no suspicion asks them', () => {
    const years = 10 * 365 * 86_400_000;
    const world = new World({ seed: 8, clusters: [16], skew: (i) => (i % 3 === 0 ? years : i % 3 === 1 ? -years : 0) });
    world.run(60_000);
    for (const agent of world.agents) world.say(agent, 'SERVING', true);
    expect(world.until(() => world.agree(), 1000)).toBeDefined();
    expect(said(world, 'suspected')).toEqual([]);
    const victim = world.agent(4);
    world.kill(victim);
    expect(world.until(() => everywhere(world, victim, 'LEFT'), 80_000, 100)).toBeDefined();
    expect(evicted(world)).toEqual([session(victim)]);
  });
});

describe('a session’s key that is used twice', () => {
  it('ends the session once where it began', () => {
    const world = settled([8]);
    const owner = world.agent(3);
    const clone = new Membership(world.crypto, owner.membership.signer, owner.membership.ticket, 'elsewhere');
    clone.say('SERVING');
    clone.version = 40;
    world.agent(6).node.take({ type: 'local', updates: [clone.say('SERVING', true)] });
    world.run(3000);
    const ended = world.told.filter(({ action }) => action.type === 'ended');
    expect(ended).toHaveLength(1);
    expect(ended[0]).toMatchObject({ node: session(owner), action: { reason: 'cloned' } });
    world.say(owner, 'LEFT');
    expect(world.until(() => everywhere(world, owner, 'LEFT'), 2000)).toBeDefined();
  });

  it('makes all agree on one of two words of one version, and is reported with both', () => {
    const world = settled([12]);
    const liar = world.agent(2);
    const other = new Membership(world.crypto, liar.membership.signer, liar.membership.ticket, 'another-host');
    other.say('SERVING');
    other.version = liar.membership.version;
    world.say(liar, 'SERVING', true);
    world.agent(9).node.take({ type: 'local', updates: [other.say('SERVING', true)] });
    world.run(3000);
    const words = new Set(world.agents.map(({ node }) => node.replica.get(session(liar))?.record?.hash));
    expect(words.size).toBe(1);
    expect(world.agree()).toBe(true);
    expect(notices(world)).toContain('equivocation');
  });
});

describe('a replica that was away', () => {
  it('brings back none of 500 sessions that were collected meanwhile', () => {
    const world = settled([8]);
    const stale = world.agent(0).node.replica.fork();
    const old: string[] = [];
    for (let i = 0; i < 500; i++) {
      const who = { provider: 'lab', cluster: 'c0', birth: EPOCH_S - 60 * 3600, lifeS: 3600 };
      const member = world.issuer.admit(who, standInSigner(world.rng), `old-${i}`);
      member.say('SERVING');
      stale.load(member.full());
      old.push(member.session);
    }
    world.gateway.node.take({ type: 'local', updates: [world.issuer.floor(EPOCH_S - 24 * 3600)] });
    expect(world.until(() => world.agree(), 2000)).toBeDefined();
    let seen = 0;
    world.listener = (peer, action) => {
      if (action.type !== 'changed' || peer === session(returned)) return;
      seen += action.sessions.filter((id) => old.includes(id)).length;
    };
    const returned = world.join('c0', 'back-again', stale);
    world.say(returned, 'SERVING');
    expect(world.until(() => world.agree(), 5000)).toBeDefined();
    expect(seen).toBe(0);
    expect(returned.node.replica.size).toBe(9);
    expect(everywhere(world, returned, 'SERVING')).toBe(true);
  });

  it('learns who left inside the window, and nobody is taken for alive in between', () => {
    const world = settled([24]);
    const stale = world.agent(0).node.replica.fork();
    const leaving = world.agents.slice(1, 9);
    for (const agent of leaving) {
      world.say(agent, 'LEFT');
      world.clock.after(10, () => world.kill(agent));
    }
    world.run(20_000);
    let revived = 0;
    const gone = new Set(leaving.map(session));
    world.listener = (peer, action) => {
      if (action.type !== 'changed' || peer === session(returned)) return;
      revived += action.sessions.filter((id) => gone.has(id)).length;
    };
    const returned = world.join('c0', 'back-again', stale);
    world.say(returned, 'SERVING');
    expect(world.until(() => world.agree(), 5000)).toBeDefined();
    expect(revived).toBe(0);
    expect(leaving.every((agent) => everywhere(world, agent, 'LEFT'))).toBe(true);
    expect(said(world, 'suspected').filter(({ at }) => at > 12_000)).toEqual([]);
  });
});

describe('issuers’ words', () => {
  it('reach every cluster: what is evicted or revoked by one gateway is gone everywhere within a second', () => {
    const world = new World({ seed: 9, clusters: [10, 10, 24], gateways: 2 });
    world.run(15_000);
    const [first, second] = world.gateways;
    if (first === undefined || second === undefined) throw new Error('two gateways were asked for');
    const target = world.agents.find(({ cluster }) => cluster === 'c0');
    if (target === undefined) throw new Error('no agent in c0');
    first.node.take({ type: 'local', updates: [first.issuer.evict(session(target), 'operator')] });
    expect(world.until(() => everywhere(world, target, 'LEFT'), 1000)).toBeDefined();
    expect(world.told.some(({ node, action }) => node === session(target) && action.type === 'ended')).toBe(true);
    // The second gateway's key admitted all of c1.
    second.node.take({ type: 'local', updates: [second.issuer.revoke()] });
    const collected = () => world.running().every(({ node }) => node.replica.size === 34);
    expect(world.until(collected, 1000)).toBeDefined();
    const ended = world.told.filter(({ action }) => action.type === 'ended').map(({ node }) => node);
    const revoked = world.agents.filter(({ cluster }) => cluster === 'c1').map(session);
    expect(new Set(ended)).toEqual(new Set([session(target), ...revoked]));
  });

  it('about somebody else’s sessions are nobody’s words', () => {
    const world = new World({ seed: 10, clusters: [8, 8], gateways: 2 });
    world.run(15_000);
    const [, second] = world.gateways;
    const target = world.agent(1);
    const forged = second?.issuer.evict(session(target), 'silent');
    if (forged === undefined) throw new Error('two gateways were asked for');
    expect(target.cluster).toBe('c0');
    second?.node.take({ type: 'local', updates: [forged] });
    world.run(3000);
    expect(everywhere(world, target, 'SERVING')).toBe(true);
    expect(world.agent(2).node.replica.merge(encodeUpdate(forged)).outcome).toBe('rejected');
  });
});
