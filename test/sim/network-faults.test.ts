import { describe, expect, it } from 'vitest';
import { hearing, summary } from './figures.ts';
import { atPeace, evicted, notices, said, session, stateAt, suspectedSessions } from './observe.ts';
import { pick } from './random.ts';
import { type Agent, World } from './world.ts';

function settled(clusters: number[], seed = 21): World {
  const world = new World({ seed, clusters });
  world.run(12_000);
  return world;
}

/** Two halves of a cluster that cannot reach each other; the gateway is in neither. */
function split(world: World, share: number): { left: Set<string>; right: Set<string> } {
  const at = Math.floor(world.agents.length * share);
  const left = new Set(world.agents.slice(0, at).map(({ host }) => host));
  const right = new Set(world.agents.slice(at).map(({ host }) => host));
  world.cut((a, b) => (left.has(a) && right.has(b)) || (right.has(a) && left.has(b)));
  return { left, right };
}

function latencies(world: World, speakers: readonly Agent[], count: number, patienceMs = 6000) {
  const heard: number[] = [];
  let missed = 0;
  for (let i = 0; i < count; i++) {
    const times = hearing(world, pick(speakers, world.rng), patienceMs);
    heard.push(...times);
    missed += world.running().length - 1 - times.length;
  }
  return summary(heard, missed);
}

describe('a cluster cut in two while its gateway reaches both halves', () => {
  it('suspects nobody, and what one half says reaches the other within a second', () => {
    const world = settled([32]);
    split(world, 0.4);
    world.run(10_000);
    const { p95, missed } = latencies(world, world.agents, 12, 15_000);
    expect(missed).toBe(0);
    expect(p95).toBeLessThanOrEqual(1000);
    expect(said(world, 'suspected')).toEqual([]);
    world.heal();
    world.run(70_000);
    expect(world.agree()).toBe(true);
    expect(latencies(world, world.agents, 5).p95).toBeLessThanOrEqual(20);
  });
});

describe('a cluster cut in two with its gateway away', () => {
  it('evicts nobody in five minutes, and is whole and equal within 2 s of the cut’s end', () => {
    const world = settled([32]);
    world.kill(world.gateway);
    split(world, 0.5);
    world.run(300_000);
    expect(evicted(world)).toEqual([]);
    expect(suspectedSessions(world).size).toBeGreaterThanOrEqual(24);
    world.say(world.agent(0), 'SERVING', true);
    world.say(world.agent(31), 'SERVING', true);
    world.run(1000);
    world.heal();
    expect(world.until(() => world.agree() && atPeace(world), 2000, 20)).toBeDefined();
    expect(evicted(world)).toEqual([]);
  });
});

describe('one direction between two nodes is blocked', () => {
  it('suspects neither: others reach both', () => {
    const world = settled([16]);
    const a = world.agent(2);
    const b = world.agent(9);
    world.cut((from, to) => from === a.host && to === b.host);
    world.run(120_000);
    expect(said(world, 'suspected')).toEqual([]);
    expect(latencies(world, [a, b], 6).last).toBeLessThanOrEqual(1000);
  });

  it('suspects nobody although a node hears all and is heard by none but the gateway', () => {
    const world = settled([16]);
    const mute = world.agent(5);
    world.cut((from, to) => from === mute.host && !to.startsWith('gateway'));
    world.run(60_000);
    expect(said(world, 'suspected')).toEqual([]);
    expect(evicted(world)).toEqual([]);
  });
});

describe('a node that reaches its neighbours and not the gateway', () => {
  it('is unrouted and never evicted, and its words arrive through a neighbour', () => {
    const world = settled([16]);
    const lost = world.agent(6);
    world.cut((from, to) => [from, to].includes(lost.host) && [from, to].some((host) => host.startsWith('gateway')));
    expect(world.until(() => !world.routable(world.gateway, session(lost)), 21_000, 100)).toBeDefined();
    world.run(300_000);
    expect(evicted(world)).toEqual([]);
    expect(said(world, 'suspected')).toEqual([]);
    world.say(lost, 'DOWN');
    expect(world.until(() => stateAt(world, lost) === 'DOWN', 1500, 1)).toBeDefined();
    world.heal();
    world.run(5000);
    expect(world.agree()).toBe(true);
  });
});

describe('the gateway is away for five minutes', () => {
  it('changes nothing inside a cluster, evicts no living node, and all is equal 5 s after its return', () => {
    const world = settled([16, 16]);
    const gateway = world.gateway;
    world.kill(gateway);
    world.run(2000);
    const home = world.agents.filter(({ cluster }) => cluster === 'c0').map(session);
    const heard: number[] = [];
    for (let i = 0; i < 12; i++) {
      const speaker = world.agent(i);
      const from = world.clock.now;
      world.listener = (peer, action, at) => {
        if (action.type !== 'changed' || !action.sessions.includes(session(speaker))) return;
        if (home.includes(peer) && peer !== session(speaker)) heard.push(at - from);
      };
      world.say(speaker, 'SERVING', true);
      world.run(1000);
    }
    world.listener = () => {};
    expect(heard).toHaveLength(12 * 15);
    expect(summary(heard, 0).p95).toBeLessThanOrEqual(20);
    const dead = world.agent(3);
    world.kill(dead);
    world.run(290_000);
    const returned = world.restartGateway(gateway, 'nothing');
    expect(world.until(() => world.agree() && returned.node.replica.size === 32, 8000, 50)).toBeDefined();
    world.run(60_000);
    expect(evicted(world).filter((gone) => gone !== session(dead))).toEqual([]);
    expect(world.running().every((agent) => world.routable(returned, session(agent)))).toBe(true);
    expect(world.until(() => stateAt(world, dead) === 'LEFT', 300_000, 1000)).toBeDefined();
    expect(evicted(world)).toEqual([session(dead)]);
  });
});

describe('the gateway’s object is replaced in the middle of a burst', () => {
  it.each(['all', 'nothing'] as const)(
    'has everything within 5 s when it kept %s, and no version went back',
    (keeps) => {
      const world = settled([16]);
      const highest = new Map<string, number>();
      let wentBack = 0;
      world.listener = (peer, action) => {
        if (!peer.startsWith('gw:') || action.type !== 'changed') return;
        for (const id of action.sessions) {
          const version = world.gateway.node.replica.get(id)?.version ?? 0;
          if (keeps === 'all' && version < (highest.get(id) ?? 0)) wentBack++;
          highest.set(id, version);
        }
      };
      const burst = () => {
        for (let i = 0; i < 40; i++)
          world.clock.after(i * 50, () => world.say(pick(world.agents, world.rng), 'SERVING', true));
      };
      burst();
      world.run(1000);
      world.restartGateway(world.gateway, keeps);
      world.run(1100);
      expect(world.until(() => world.agree() && world.gateway.node.replica.size === 16, 5000, 50)).toBeDefined();
      expect(wentBack).toBe(0);
      world.run(60_000);
      expect(evicted(world)).toEqual([]);
    },
  );
});

describe('a node whose network comes and goes', () => {
  it('changes routing at most once per 10 s and is never evicted', () => {
    const world = settled([16]);
    const flapping = world.agent(8);
    const off = { now: false };
    world.network.cut = (from, to) => off.now && (from === flapping.host || to === flapping.host);
    for (let i = 0; i < 60; i++) world.clock.after(i * 2000, () => (off.now = i % 2 === 0));
    const changes: number[] = [];
    world.listener = (peer, action, at) => {
      if (peer === world.gateway.id && action.type === 'liveness' && action.session === session(flapping))
        changes.push(at);
    };
    world.run(120_000);
    expect(changes.length).toBeLessThanOrEqual(13);
    off.now = false;
    world.run(90_000);
    expect(evicted(world)).toEqual([]);
    expect(world.routable(world.gateway, session(flapping))).toBe(true);
  });

  it('is routed to 20 s after its link stays up, however often it was lost', () => {
    const world = settled([8]);
    const flapping = world.agent(2);
    const off = { now: false };
    world.network.cut = (from, to) => off.now && (from === flapping.host || to === flapping.host);
    for (let i = 0; i < 10; i++) {
      off.now = true;
      world.run(6000);
      off.now = false;
      world.run(6000);
    }
    // A request waits for a minute by default, so the only node of a model must be back long before.
    expect(world.until(() => world.routable(world.gateway, session(flapping)), 20_000, 500)).toBeDefined();
    expect(world.until(() => atPeace(world), 20_000, 500)).toBeDefined();
    expect(evicted(world)).toEqual([]);
  });
});

describe('a peer that reads slowly', () => {
  it('does not slow the others, and is equal 5 s after it recovered', () => {
    const world = settled([16]);
    const slow = world.agent(4);
    const stop = { now: false };
    const drag = () => {
      if (stop.now) return;
      slow.node.stall(300);
      world.clock.after(330, drag);
    };
    drag();
    const others = world.agents.filter((agent) => agent !== slow);
    const heard: number[] = [];
    world.listener = () => {};
    for (let i = 0; i < 300; i++) world.clock.after(i * 30, () => world.say(pick(others, world.rng), 'SERVING', true));
    world.run(9000);
    for (let i = 0; i < 6; i++) {
      const from = world.clock.now;
      const speaker = pick(others, world.rng);
      world.listener = (peer, action, at) => {
        if (peer === session(slow) || action.type !== 'changed' || !action.sessions.includes(session(speaker))) return;
        heard.push(at - from);
      };
      world.say(speaker, 'SERVING', true);
      world.run(1000);
    }
    expect(summary(heard, 0).p95).toBeLessThanOrEqual(20);
    stop.now = true;
    expect(world.until(() => world.agree(), 5000, 50)).toBeDefined();
    expect(evicted(world)).toEqual([]);
  });
});

describe('several clusters and several gateways', () => {
  it('agree, and what one gateway’s issuer evicts is gone at the other', () => {
    const world = new World({ seed: 3, clusters: [8, 8], gateways: 2 });
    world.run(15_000);
    expect(world.agree()).toBe(true);
    const victim = world.agent(2);
    world.kill(victim);
    const gone = () => world.gateways.every(({ node }) => node.replica.get(session(victim))?.state === 'LEFT');
    expect(world.until(gone, 90_000, 100)).toBeDefined();
    expect(evicted(world)).toEqual([session(victim)]);
  });

  it('keep a node that only one of two gateways reaches', () => {
    const world = new World({ seed: 4, clusters: [6], gateways: 2 });
    world.run(15_000);
    const [first] = world.gateways;
    const node = world.agent(1);
    world.cut((from, to) => [from, to].includes(node.host) && [from, to].includes(first?.host ?? ''));
    world.run(400_000);
    expect(evicted(world)).toEqual([]);
    expect(notices(world)).toEqual([]);
  });
});
