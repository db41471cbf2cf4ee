import { describe, expect, it, vi } from 'vitest';
import { type GossipAction, livenessOf, type PathVerdict, saveState } from '../../../shared/gossip/index.ts';
import { TimerQueue } from '../../../shared/gossip/timer-queue.ts';
import { liveness, One, ofType, partsTo } from './one.ts';

const GRACE_LONG_MS = 60_000;
const GRACE_SHORT_MS = 20_000;

/** A gateway with a relay that gives one verdict until `hear`; all tunnels are open, and there are three delegates. */
function office(size: number, first: PathVerdict) {
  let relay = first;
  const hear = (verdict: PathVerdict) => {
    relay = verdict;
  };
  const one = new One('gateway', [size]);
  for (const { session } of one.members) one.give({ type: 'tunnel', session, open: true });
  one.open(1, 2, 3);
  const answer = (actions: GossipAction[], witness: PathVerdict = 'silent'): GossipAction[] => {
    const all = [...actions];
    for (const action of actions) {
      if (action.type === 'askGateway')
        all.push(...answer(one.give({ type: 'gatewayAnswered', target: action.target, verdict: relay }), witness));
      if (action.type !== 'send') continue;
      const from = one.members.findIndex(({ session }) => session === action.peer);
      for (const part of ofType(partsTo([action]), 'probe'))
        all.push(...answer(one.say(from, { type: 'probed', seq: part.seq, verdict: witness }), witness));
    }
    return all;
  };
  /** Milliseconds until the core requests an `evict`; undefined: not within `limitMs`. */
  const evictedAfter = (limitMs: number, witness: PathVerdict = 'silent'): number | undefined => {
    for (let passed = 0; passed <= limitMs; passed += 100) {
      if (answer(one.pass(100), witness).some(({ type }) => type === 'evict')) return passed + 100;
    }
    return undefined;
  };
  /** Time passes in steps that are short enough for answers to arrive in time. */
  const pass = (ms: number, witness: PathVerdict = 'silent'): GossipAction[] => {
    const all: GossipAction[] = [];
    for (let passed = 0; passed < ms; passed += 100) all.push(...answer(one.pass(100), witness));
    return all;
  };
  return { one, answer, evictedAfter, pass, hear };
}

describe('a gateway that has nothing to do', () => {
  it('asks for no timer, so that its object may sleep', () => {
    const { one } = office(40, 'silent');
    const ping = { type: 'ping', seq: 1, root: new Uint8Array(8), livenessHash: 0 } as const;
    one.actions.length = 0;
    one.say(1, ping);
    one.give({ type: 'local', updates: [one.member(7).say('SERVING', true)] });
    expect(one.actions.filter(({ type }) => type === 'timer')).toEqual([]);
  });

  it('says nothing on channels that were open while it slept', () => {
    const { one } = office(40, 'silent');
    one.state = one.create('gateway', saveState(one.state));
    const actions = [
      ...one.give({ type: 'start' }),
      ...one.give({ type: 'opened', peer: one.id(1), inbound: true, resumed: true }),
    ];
    expect(actions.filter(({ type }) => type === 'send' || type === 'timer')).toEqual([]);
  });

  it('asks its delegates for ten messages a minute in all, however many they are', () => {
    const one = new One('gateway', [40]);
    const members = Array.from({ length: 24 }, (_, i) => i + 1);
    one.open(...members);
    const ping = { type: 'ping', seq: 1, root: new Uint8Array(8), livenessHash: 0 } as const;
    const pace = ofType(partsTo(one.say(1, ping)), 'ack')[0]?.paceMs ?? 0;
    expect((60_000 / pace) * members.length).toBeLessThanOrEqual(10);
  });
});

describe('a session that speaks on its tunnel again after it was silent', () => {
  it('is suspected no more, though only this gateway had found it silent', () => {
    const { one, answer } = office(10, 'silent');
    answer(one.give({ type: 'doubt', session: one.id(5) }));
    expect(livenessOf(one.state, one.id(5))).toBe('suspected');
    one.give({ type: 'tunnel', session: one.id(5), open: true });
    expect(livenessOf(one.state, one.id(5))).toBe('alive');
  });

  it('is not suspected by answers that were under way when it spoke', () => {
    const { one, answer } = office(10, 'silent');
    const asked = one.give({ type: 'doubt', session: one.id(5) });
    one.give({ type: 'tunnel', session: one.id(5), open: true });
    answer(asked);
    one.pass(5_000);
    expect(livenessOf(one.state, one.id(5))).toBe('alive');
  });
});

describe('the grace of a suspect', () => {
  it('is long for one observer, short for three, and no shorter for one that repeats itself', () => {
    const alone = office(10, 'silent');
    alone.answer(alone.one.say(1, alone.one.suspicion(5, 6)));
    alone.answer(alone.one.say(2, alone.one.suspicion(5, 6)));
    expect(liveness(alone.one.actions)).toEqual(['suspected']);
    expect(alone.evictedAfter(GRACE_LONG_MS + 5000)).toBeGreaterThanOrEqual(GRACE_LONG_MS - 1000);
    const agreed = office(10, 'silent');
    for (const observer of [6, 7, 8]) agreed.answer(agreed.one.say(1, agreed.one.suspicion(5, observer)));
    const after = agreed.evictedAfter(GRACE_LONG_MS);
    expect(after).toBeGreaterThanOrEqual(GRACE_SHORT_MS - 1000);
    expect(after).toBeLessThanOrEqual(GRACE_SHORT_MS + 2000);
  });

  it('ends with its refutation', () => {
    const { one, answer, evictedAfter } = office(10, 'silent');
    answer(one.say(1, one.suspicion(5, 6)));
    one.pass(30_000);
    answer(one.say(1, one.refutation(5, 1)));
    expect(livenessOf(one.state, one.id(5))).toBe('alive');
    expect(evictedAfter(120_000)).toBeUndefined();
  });

  it('goes on where it was when the object slept meanwhile', () => {
    const { one, answer } = office(10, 'silent');
    answer(one.say(1, one.suspicion(5, 6)));
    one.pass(40_000);
    const memory = structuredClone(saveState(one.state));
    one.state = one.create('gateway', memory);
    one.give({ type: 'start' });
    for (const { session } of one.members) if (session !== one.id(5)) one.give({ type: 'tunnel', session, open: true });
    expect(livenessOf(one.state, one.id(5))).toBe('suspected');
    const actions = answer(one.pass(21_500));
    const last = answer(one.pass(1000));
    expect([...actions, ...last].filter(({ type }) => type === 'evict')).toHaveLength(1);
  });

  it('is never over while its own tunnel answers', () => {
    const { one, answer, evictedAfter } = office(10, 'alive');
    answer(one.say(1, one.suspicion(5, 6)));
    expect(livenessOf(one.state, one.id(5))).toBe('alive');
    expect(evictedAfter(120_000)).toBeUndefined();
  });
});

describe('a tunnel that closes', () => {
  it('has ten seconds to come back', () => {
    const { one, answer } = office(10, 'unknown');
    one.give({ type: 'tunnel', session: one.id(5), open: false });
    expect(liveness(answer(one.pass(9000)))).toEqual([]);
    one.give({ type: 'tunnel', session: one.id(5), open: true });
    expect(liveness(answer(one.pass(60_000)))).toEqual([]);
  });

  it('makes a session unreachable, not suspected, while its neighbours reach it', () => {
    const { one, pass, evictedAfter } = office(10, 'unknown');
    one.give({ type: 'tunnel', session: one.id(5), open: false });
    expect(liveness(pass(11_000, 'alive'))).toEqual(['unreachable']);
    expect(evictedAfter(400_000, 'alive')).toBeUndefined();
  });

  it('suspects with a long grace period if no other observer could confirm it', () => {
    const { one, pass, evictedAfter } = office(10, 'unknown');
    one.give({ type: 'tunnel', session: one.id(5), open: false });
    expect(liveness(pass(11_000, 'unknown'))).toEqual(['suspected']);
    expect(evictedAfter(300_000, 'unknown')).toBeGreaterThanOrEqual(4 * GRACE_LONG_MS - 2000);
  });
});

describe('a gateway that is new', () => {
  it('gives all nodes a minute to return, then probes a few at a time, and keeps those it reaches', () => {
    const one = new One('gateway', [120]);
    one.open(1, 2, 3);
    const asked: string[] = [];
    let open = 0;
    let most = 0;
    const answer = (actions: readonly GossipAction[]): void => {
      for (const action of actions) {
        if (action.type === 'askGateway') asked.push(action.target);
        if (action.type !== 'send') continue;
        const from = one.members.findIndex(({ session }) => session === action.peer);
        const probes = ofType(partsTo([action]), 'probe');
        open += probes.length;
        most = Math.max(most, open / 3);
        for (const { seq } of probes) {
          open--;
          answer(one.say(from, { type: 'probed', seq, verdict: 'alive' }));
        }
      }
    };
    const pass = (ms: number) => {
      for (let passed = 0; passed < ms; passed += 50) {
        const actions = one.pass(50);
        most = Math.max(most, actions.filter(({ type }) => type === 'askGateway').length);
        answer(actions);
        for (const { session } of one.members)
          answer(one.give({ type: 'gatewayAnswered', target: session, verdict: 'unknown' }));
      }
    };
    pass(59_000);
    expect(asked).toEqual([]);
    pass(20_000);
    expect(new Set(asked).size).toBe(120);
    expect(most).toBeLessThanOrEqual(32);
    expect(new Set(liveness(one.actions))).toEqual(new Set(['unreachable']));
  });
});

describe('a gateway that is new, to which nodes return slowly', () => {
  it('probes the others only when no node has returned for ten seconds', () => {
    const one = new One('gateway', [40]);
    const asked = (actions: readonly GossipAction[]) =>
      new Set(actions.flatMap((action) => (action.type === 'askGateway' ? [action.target] : []))).size;
    let during = 0;
    for (let i = 0; i < 30; i++) {
      during += asked(one.pass(4_000));
      one.give({ type: 'tunnel', session: one.id(i), open: true });
    }
    expect(during).toBe(0);
    expect(asked(one.pass(9_000))).toBe(0);
    expect(asked(one.pass(12_000))).toBe(10);
  });
});

describe('many suspects at once', () => {
  it('take an amount of work that grows with their number, not with its square', () => {
    const { one, pass } = office(1_000, 'silent');
    const timers = vi.spyOn(TimerQueue.prototype, 'set');
    for (const { session } of one.members) one.give({ type: 'tunnel', session, open: false });
    pass(300_000);
    expect(one.members.every(({ session }) => livenessOf(one.state, session) === 'suspected')).toBe(true);
    expect(timers.mock.calls.length).toBeLessThan(20 * one.members.length);
  });

  it('freeze evictions of their cluster for ten minutes, and only of theirs', () => {
    const { one, answer } = office(16, 'silent');
    for (const target of [5, 6, 7, 8]) answer(one.say(1, one.suspicion(target, 10)));
    expect(one.actions).toContainEqual(
      expect.objectContaining({ type: 'notice', notice: expect.objectContaining({ what: 'frozen', cluster: 'c0' }) }),
    );
    const evictions = (actions: readonly GossipAction[]) => actions.filter(({ type }) => type === 'evict').length;
    let during = 0;
    for (let i = 0; i < 600; i++) during += evictions(answer(one.pass(1000)));
    expect(during).toBe(0);
    let after = 0;
    for (let i = 0; i < 65; i++) after += evictions(answer(one.pass(1000)));
    expect(after).toBe(4);
  });

  it('get requests again within seconds of a freeze if their tunnels answer, also after a restart of the gateway', () => {
    const { one, answer, pass, hear } = office(16, 'silent');
    for (let i = 4; i < 16; i++) answer(one.give({ type: 'doubt', session: one.id(i) }));
    one.state = one.create('gateway', saveState(one.state));
    answer(one.give({ type: 'start' }));
    const suspected = () => one.members.filter(({ session }) => livenessOf(one.state, session) === 'suspected').length;
    pass(20_000);
    expect(suspected()).toBe(12);
    hear('alive');
    pass(20_000);
    expect(suspected()).toBe(0);
    // Nothing is left to do.
    expect(pass(20_000).filter(({ type }) => type === 'askGateway')).toEqual([]);
  });

  it('are no freeze while they are few', () => {
    const { one, answer } = office(40, 'silent');
    for (const target of [5, 6, 7]) answer(one.say(1, one.suspicion(target, 10)));
    expect(one.actions.filter(({ type }) => type === 'notice')).toEqual([]);
  });
});

describe('news at a gateway', () => {
  it('go to three of each other cluster and to one at home, not back', () => {
    const one = new One('gateway', [6, 6, 6]);
    one.open(...Array.from({ length: 3 }, (_, i) => i), 6, 7, 8, 12, 13, 14);
    const to = (actions: readonly GossipAction[]) =>
      actions.flatMap((action) =>
        action.type === 'send' ? [one.members.findIndex(({ session }) => session === action.peer)] : [],
      );
    const fromTunnel = to(one.give({ type: 'local', updates: [one.member(4).say('SERVING', true)] }));
    expect(fromTunnel.filter((i) => i < 6)).toHaveLength(1);
    expect(fromTunnel.filter((i) => i >= 6 && i < 12)).toHaveLength(3);
    expect(fromTunnel.filter((i) => i >= 12)).toHaveLength(3);
    const fromPeer = to(one.say(7, { type: 'news', update: one.member(9).say('SERVING', true) }));
    expect(fromPeer.filter((i) => i >= 6 && i < 12)).toEqual([]);
    expect(fromPeer).toHaveLength(6);
  });
});

describe('times that the operator sets', () => {
  const EXTRA_MS = 2_000;

  it('hold for a suspect whose grace is under way: shorter, it ends sooner; longer, later', () => {
    const shorter = office(10, 'silent');
    shorter.answer(shorter.one.say(1, shorter.one.suspicion(5, 6)));
    expect(shorter.evictedAfter(10_000)).toBeUndefined();
    shorter.answer(shorter.one.give({ type: 'tuned', options: { graceMinMs: 5_000 } }));
    expect(shorter.evictedAfter(GRACE_LONG_MS)).toBeLessThanOrEqual(3 * 5_000 - 10_000 + EXTRA_MS);
    const longer = office(10, 'silent');
    longer.answer(longer.one.say(1, longer.one.suspicion(5, 6)));
    longer.answer(longer.one.give({ type: 'tuned', options: { graceMinMs: 40_000 } }));
    expect(longer.evictedAfter(2 * GRACE_LONG_MS - EXTRA_MS)).toBeUndefined();
  });

  it('say how long a closed tunnel may stay away, also one that closed before', () => {
    const suspectedAfter = (reconnectMs: number): number => {
      const { one, pass } = office(10, 'silent');
      one.give({ type: 'tunnel', session: one.id(5), open: false });
      one.give({ type: 'tuned', options: { reconnectMs } });
      for (let passed = 0; passed < 60_000; passed += 100) {
        pass(100);
        if (livenessOf(one.state, one.id(5)) === 'suspected') return passed;
      }
      return Number.POSITIVE_INFINITY;
    };
    for (const ms of [1_000, 10_000, 40_000]) {
      expect(suspectedAfter(ms)).toBeGreaterThanOrEqual(ms - 100);
      expect(suspectedAfter(ms)).toBeLessThanOrEqual(ms + EXTRA_MS);
    }
  });
});
