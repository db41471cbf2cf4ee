import { expect, it } from 'vitest';
import { EventQueue } from '../../../shared/gossip/event-queue.ts';
import type { GossipAction, GossipEvent } from '../../../shared/gossip/gossip-events.ts';

const doubt = (session: string): GossipEvent => ({ type: 'doubt', session });
const changed = (session: string): GossipAction => ({ type: 'changed', sessions: [session] });

/** Each doubt gives two actions; `log` records steps and actions in order. */
function queue(log: string[], act: (session: string) => void): EventQueue {
  const step = (event: GossipEvent, now: number) => {
    if (event.type !== 'doubt') return [];
    log.push(`step ${event.session} at ${now}`);
    return [changed(`${event.session}1`), changed(`${event.session}2`)];
  };
  let now = 0;
  return new EventQueue({
    state: { step },
    now: () => ++now,
    random: () => 0,
    act: (action, at) => {
      if (action.type !== 'changed') return;
      const [session = ''] = action.sessions;
      log.push(`act ${session} at ${at}`);
      act(session);
    },
  });
}

it('handles an event that an action causes after all actions of its step', () => {
  const log: string[] = [];
  const steps = queue(log, (session) => {
    if (session === 'a1') steps.handle(doubt('b'));
  });
  steps.handle(doubt('a'));
  expect(log).toEqual(['step a at 1', 'act a1 at 1', 'act a2 at 1', 'step b at 2', 'act b1 at 2', 'act b2 at 2']);
});

it('carries nothing out once it is closed, not even the rest of a step', () => {
  const log: string[] = [];
  const steps = queue(log, () => {
    steps.handle(doubt('b'));
    steps.close();
  });
  steps.handle(doubt('a'));
  steps.handle(doubt('c'));
  expect(log).toEqual(['step a at 1', 'act a1 at 1']);
});

it('goes on after an action that throws', () => {
  const log: string[] = [];
  const steps = queue(log, (session) => {
    if (session === 'a1') throw new Error('broken');
  });
  expect(() => steps.handle(doubt('a'))).toThrow('broken');
  steps.handle(doubt('b'));
  expect(log.slice(2)).toEqual(['step b at 2', 'act b1 at 2', 'act b2 at 2']);
});
