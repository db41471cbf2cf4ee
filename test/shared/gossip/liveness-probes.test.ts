import { describe, expect, it } from 'vitest';
import type { GossipAction, PathVerdict } from '../../../shared/gossip/index.ts';
import { liveness, One, ofType, partsTo } from './one.ts';

/** A core with open channels; every member except `silent` answers pings immediately. */
function watched(size: number, silent: number) {
  const one = new One('agent', [size]);
  one.open(...Array.from({ length: size - 1 }, (_, i) => i + 1));
  const indexOf = (peer: string) => one.members.findIndex(({ session }) => session === peer);
  /** Lets time pass while the others answer; `helper` and `relay` are their verdicts about the silent member. */
  const live = (ms: number, helper: PathVerdict | undefined, relay: PathVerdict | undefined): GossipAction[] => {
    const all: GossipAction[] = [];
    const respond = (actions: GossipAction[]) => {
      all.push(...actions);
      for (const action of actions) {
        if (action.type === 'askGateway' && relay !== undefined)
          respond(one.give({ type: 'gatewayAnswered', target: action.target, verdict: relay }));
        if (action.type !== 'send' || indexOf(action.peer) === silent) continue;
        for (const part of partsTo([action])) {
          const from = indexOf(action.peer);
          if (part.type === 'ping')
            respond(
              one.say(from, {
                type: 'ack',
                seq: part.seq,
                root: part.root,
                livenessHash: part.livenessHash,
                paceMs: 0,
              }),
            );
          if (part.type === 'probe' && helper !== undefined)
            respond(one.say(from, { type: 'probed', seq: part.seq, verdict: helper }));
        }
      }
    };
    for (let passed = 0; passed < ms; passed += 10) respond(one.pass(10));
    return all;
  };
  return { one, live };
}

describe('three paths', () => {
  it('that all say no make a suspect', () => {
    const { live } = watched(8, 3);
    expect(liveness(live(20_000, 'silent', 'silent'))).toContain('suspected');
  });

  it.each([
    ['a helper reaches it', 'alive', 'silent'],
    ['the relay reaches it', 'silent', 'alive'],
    ['helpers could not try', 'unknown', 'silent'],
    ['helpers do not answer', undefined, 'silent'],
  ] as const)('make none when %s', (_, helper, relay) => {
    const { live } = watched(8, 3);
    expect(liveness(live(20_000, helper, relay))).not.toContain('suspected');
  });

  it('need more helpers where no relay can tell: with seven others there are, with two there are not', () => {
    expect(liveness(watched(8, 3).live(20_000, 'silent', 'unknown'))).toContain('suspected');
    expect(liveness(watched(8, 3).live(20_000, 'silent', undefined))).toContain('suspected');
    expect(liveness(watched(3, 1).live(20_000, 'silent', 'unknown'))).not.toContain('suspected');
    expect(liveness(watched(3, 1).live(20_000, 'silent', 'silent'))).toContain('suspected');
  });

  it('are not asked about a node that was never reached from here, because its addresses may be private', () => {
    const one = new One('agent', [8]);
    one.open(2, 4, 5, 6, 7);
    for (const i of [1, 3]) one.give({ type: 'dialFailed', peer: one.id(i) });
    one.give({ type: 'doubt', session: one.id(3) });
    one.give({ type: 'dialFailed', peer: one.id(3) });
    const actions = one.pass(3000);
    expect(ofType(partsTo(actions), 'probe').filter(({ target }) => target === one.id(3))).toEqual([]);
  });

  it('wake no relay while helpers have not failed too', () => {
    const { live } = watched(8, 3);
    expect(live(20_000, 'alive', 'silent').filter(({ type }) => type === 'askGateway')).toEqual([]);
  });
});

describe('a direct probe', () => {
  it('is not answered by another node', () => {
    const one = new One('agent', [8]);
    one.open(1, 2, 3, 4, 5, 6, 7);
    const ping = ofType(partsTo(one.give({ type: 'doubt', session: one.id(3) }), one.id(3)), 'ping')[0];
    if (ping === undefined) throw new Error('no ping');
    one.say(4, { type: 'ack', seq: ping.seq, root: ping.root, livenessHash: 0, paceMs: 0 });
    const later = one.pass(250);
    expect(ofType(partsTo(later), 'probe').filter(({ target }) => target === one.id(3)).length).toBeGreaterThan(0);
  });

  it('that is due late suspects no node before waiting messages were read', () => {
    const one = new One('agent', [8]);
    one.open(1, 2, 3, 4, 5, 6, 7);
    const asked = one.give({ type: 'doubt', session: one.id(3) });
    const ping = ofType(partsTo(asked, one.id(3)), 'ping')[0];
    if (ping === undefined) throw new Error('no ping');
    // The process was paused for two seconds: its timer runs before it reads the answer that arrived meanwhile.
    one.now += 2000;
    const late = one.give({ type: 'timer' });
    expect(ofType(partsTo(late), 'probe').filter(({ target }) => target === one.id(3))).toEqual([]);
    one.say(3, { type: 'ack', seq: ping.seq, root: ping.root, livenessHash: 0, paceMs: 0 });
    const after = one.pass(150);
    expect(ofType(partsTo(after), 'probe').filter(({ target }) => target === one.id(3))).toEqual([]);
  });
});

it('members that answer after 0.6 s, as slow machines do, are not accused for long: from then on they are waited for longer', () => {
  const one = new One('agent', [8]);
  one.open(1, 2, 3, 4, 5, 6, 7);
  const answers: { at: number; from: number; seq: number; root: Uint8Array }[] = [];
  const helped: number[] = [];
  const look = (actions: readonly GossipAction[]): void => {
    for (const action of actions) {
      if (action.type !== 'send') continue;
      const from = one.members.findIndex(({ session }) => session === action.peer);
      for (const { seq, root } of ofType(partsTo([action]), 'ping'))
        answers.push({ at: one.now + 600, from, seq, root });
      if (ofType(partsTo([action]), 'probe').length > 0) helped.push(one.now);
    }
  };
  const begin = one.now;
  while (one.now < begin + 30_000) {
    look(one.pass(50));
    const due = answers.filter(({ at }) => at <= one.now);
    answers.splice(0, due.length);
    for (const { from, seq, root } of due) look(one.say(from, { type: 'ack', seq, root, livenessHash: 0, paceMs: 0 }));
  }
  expect(helped.length).toBeGreaterThan(0);
  expect(Math.max(...helped) - begin).toBeLessThan(5_000);
});

describe('a member that was not reached once', () => {
  it('is tried again although it is no neighbour, until it answers', () => {
    const one = new One('agent', [40]);
    const members = Array.from({ length: 8 }, (_, i) => i + 1);
    one.open(...members);
    /** The core's own dials fail, but the other members report that they reach it. */
    const react = (actions: readonly GossipAction[]): void => {
      for (const action of actions) {
        if (action.type === 'dial') react(one.give({ type: 'dialFailed', peer: action.peer }));
        if (action.type !== 'send') continue;
        const from = one.members.findIndex(({ session }) => session === action.peer);
        for (const { seq } of ofType(partsTo([action]), 'probe'))
          react(one.say(from, { type: 'probed', seq, verdict: 'alive' }));
      }
    };
    react(one.give({ type: 'closed', peer: one.id(4) }));
    react(one.give({ type: 'doubt', session: one.id(4) }));
    for (let i = 0; i < 100; i++) react(one.pass(100));
    expect(one.actions.filter((action) => action.type === 'dial' && action.peer === one.id(4)).length).toBeGreaterThan(
      2,
    );
    one.give({ type: 'opened', peer: one.id(4), inbound: false });
    expect(
      liveness(one.actions.filter((action) => action.type === 'liveness' && action.session === one.id(4))).at(-1),
    ).toBe('alive');
  });
});

describe('a helper', () => {
  it('says alive when the target answers, silent when it does not, unknown when it cannot try', () => {
    const one = new One('agent', [8]);
    one.open(1, 2, 3);
    const verdicts = (actions: readonly GossipAction[]) =>
      ofType(partsTo(actions, one.id(1)), 'probed').map(({ verdict }) => verdict);
    const asked = one.say(1, { type: 'probe', seq: 5, target: one.id(2) });
    const ping = ofType(partsTo(asked, one.id(2)), 'ping')[0];
    if (ping === undefined) throw new Error('no ping');
    expect(verdicts(one.say(2, { type: 'ack', seq: ping.seq, root: ping.root, livenessHash: 0, paceMs: 0 }))).toEqual([
      'alive',
    ]);
    one.say(1, { type: 'probe', seq: 6, target: one.id(3) });
    expect(verdicts(one.pass(300))).toEqual(['silent']);
    const dialled = one.say(1, { type: 'probe', seq: 7, target: one.id(6) });
    expect(verdicts(dialled)).toEqual([]);
    expect(verdicts(one.give({ type: 'dialFailed', peer: one.id(6) }))).toEqual(['unknown']);
    expect(verdicts(one.say(1, { type: 'probe', seq: 8, target: one.id(0) }))).toEqual(['alive']);
  });
});

describe('the interval between probes', () => {
  it('is the one that is set, at once', () => {
    const { one, live } = watched(8, -1);
    const pings = (ms: number) => ofType(partsTo(live(ms, 'alive', 'alive')), 'ping').length;
    const usual = pings(60_000);
    one.give({ type: 'tuned', options: { probeMs: 10_000 } });
    const seldom = pings(60_000);
    one.give({ type: 'tuned', options: { probeMs: 500 } });
    expect(usual).toBeGreaterThanOrEqual(5 * seldom);
    expect(pings(60_000)).toBeGreaterThan(1.5 * usual);
  });
});
