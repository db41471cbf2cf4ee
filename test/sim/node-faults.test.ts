import { describe, expect, it } from 'vitest';
import { hearing, summary } from './figures.ts';
import {
  atPeace,
  believers,
  everywhere,
  evicted,
  notices,
  said,
  session,
  stateAt,
  suspectedSessions,
} from './observe.ts';
import { pick } from './random.ts';
import { World } from './world.ts';

function settled(nodes: number, seed = 11): World {
  const world = new World({ seed, clusters: [nodes] });
  world.run(12_000);
  return world;
}

describe('a process that is killed', () => {
  it('is unrouted within 50 ms, suspected within 12 s and LEFT within 75 s, and nobody else is touched', () => {
    const world = settled(16);
    const before = new Map(world.agents.map((agent) => [agent, agent.node.replica.size]));
    const victim = world.agent(3);
    world.kill(victim);
    expect(world.until(() => world.gatewayKnowsClosed(session(victim)), 50, 1)).toBeLessThanOrEqual(50);
    const noticed = world.until(() => believers(world, victim).length === 15, 12_000, 50);
    expect(noticed).toBeLessThanOrEqual(12_000);
    expect(world.until(() => everywhere(world, victim, 'LEFT'), 75_000 - (noticed ?? 0), 50)).toBeDefined();
    expect(evicted(world)).toEqual([session(victim)]);
    expect(suspectedSessions(world)).toEqual(new Set([session(victim)]));
    for (const agent of world.running()) expect(agent.node.replica.size).toBe(before.get(agent));
  });

  it('is LEFT soon although it was alone in its cluster and only its gateway could tell', () => {
    const world = new World({ seed: 5, clusters: [1, 8] });
    world.run(12_000);
    const victim = world.agent(0);
    world.kill(victim);
    expect(world.until(() => stateAt(world, victim) === 'LEFT', 300_000, 1000)).toBeDefined();
    expect(evicted(world)).toEqual([session(victim)]);
  });

  it('is found by its neighbours with every gateway away', () => {
    const world = settled(8);
    world.kill(world.gateway);
    world.run(1000);
    const victim = world.agent(2);
    world.kill(victim);
    expect(world.until(() => believers(world, victim).length === 7, 6000, 50)).toBeDefined();
    world.run(120_000);
    expect(evicted(world)).toEqual([]);
  });
});

describe('a machine that loses power', () => {
  it('is suspected by all within 4 s although nothing was closed', () => {
    const world = settled(16);
    const victim = world.agent(5);
    world.powerOff(victim);
    expect(world.until(() => believers(world, victim).length === 15, 4000, 20)).toBeDefined();
  });
});

describe('a process that is stopped', () => {
  it('is routed again within 1 s when it goes on before the grace is over', () => {
    const world = settled(16);
    const victim = world.agent(7);
    victim.node.hang();
    expect(world.until(() => !world.routable(world.gateway, session(victim)), 4000)).toBeDefined();
    world.run(5000);
    victim.node.resume();
    expect(world.until(() => world.routable(world.gateway, session(victim)), 1000)).toBeDefined();
    expect(world.until(() => atPeace(world), 2000)).toBeDefined();
    expect(evicted(world)).toEqual([]);
  });

  it('learns when it goes on too late that its session is over, and stays LEFT', () => {
    const world = settled(8);
    const victim = world.agent(1);
    victim.node.hang();
    expect(world.until(() => everywhere(world, victim, 'LEFT'), 90_000, 100)).toBeDefined();
    victim.node.resume();
    expect(
      world.until(
        () => world.told.some(({ node, action }) => node === session(victim) && action.type === 'ended'),
        5000,
      ),
    ).toBeDefined();
    world.say(victim, 'SERVING');
    world.run(5000);
    expect(world.gateway.node.replica.get(session(victim))?.state).toBe('LEFT');
  });
});

describe('a node that says what happens to it', () => {
  it('is DOWN at its gateway after one way when its engine dies, and comes back as another session', () => {
    const world = settled(8);
    const agent = world.agent(0);
    world.say(agent, 'DOWN');
    expect(world.until(() => stateAt(world, agent) === 'DOWN', 20, 1)).toBeDefined();
    const next = world.rejoin(agent);
    expect(
      world.until(() => everywhere(world, next, 'SERVING') && everywhere(world, agent, 'LEFT'), 2000),
    ).toBeDefined();
    expect(world.until(() => world.routable(world.gateway, session(next)), 1000)).toBeDefined();
  });

  it('is never suspected when it drains and leaves', () => {
    const world = settled(16);
    const agent = world.agent(4);
    world.say(agent, 'DOWN');
    world.run(2000);
    world.say(agent, 'LEFT');
    expect(world.until(() => stateAt(world, agent) === 'LEFT', 50, 1)).toBeDefined();
    world.kill(agent);
    world.run(30_000);
    expect(said(world, 'suspected')).toEqual([]);
    expect(everywhere(world, agent, 'LEFT')).toBe(true);
  });
});

describe('a quarter of a cluster preempted at once', () => {
  it('delays nobody else, freezes evictions, and ends with the gone LEFT and nobody else', () => {
    const world = settled(64);
    const gone = world.agents.filter((_, i) => i % 4 === 0);
    const speakers = world.agents.filter((_, i) => i % 4 !== 0);
    for (const agent of gone) world.powerOff(agent);
    const heard: number[] = [];
    let missed = 0;
    for (let i = 0; i < 12; i++) {
      const times = hearing(world, pick(speakers, world.rng), 5000);
      heard.push(...times);
      missed += speakers.length - 1 - times.length;
    }
    const { p95, last } = summary(heard, missed);
    expect(missed).toBe(0);
    expect(p95).toBeLessThanOrEqual(20);
    expect(last).toBeLessThanOrEqual(5000);
    expect(world.until(() => notices(world).includes('frozen'), 10_000, 100)).toBeDefined();
    world.run(300_000);
    expect(evicted(world)).toEqual([]);
    expect(world.until(() => gone.every((agent) => everywhere(world, agent, 'LEFT')), 900_000, 5000)).toBeDefined();
    expect(new Set(evicted(world))).toEqual(new Set(gone.map(session)));
    expect(suspectedSessions(world)).toEqual(new Set(gone.map(session)));
  });
});
