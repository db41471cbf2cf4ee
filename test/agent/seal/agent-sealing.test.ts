import { expect, it } from 'vitest';
import { nodeSigner } from '../../../agent/host/node-crypto.ts';
import { AgentSealing } from '../../../agent/seal/agent-sealing.ts';
import { DelegateKey } from '../../../agent/seal/delegate-key.ts';

const DAY_S = 86_400;
const START_S = Date.parse('2026-01-01T00:00:00Z') / 1000;
const named = { session: 'a'.repeat(26), provider: 'eth' };

function sealsOf(days: number) {
  const clock = { s: START_S };
  const lines: string[] = [];
  const text = DelegateKey.make('eth', nodeSigner(), new Uint8Array(32), { now: START_S, life: days * DAY_S });
  const delegate = DelegateKey.parse(text, 'delegate.key');
  return {
    clock,
    lines,
    seals: new AgentSealing(
      () => clock.s * 1000,
      delegate,
      undefined,
      (line) => lines.push(line),
    ),
  };
}

it('says a week before its delegate runs out, and then, that pinned clients will leave the node out: each once', () => {
  const { clock, lines, seals } = sealsOf(90);
  for (const day of [0, 82, 84, 85, 90, 91]) {
    clock.s = START_S + day * DAY_S;
    seals.recordPart(named);
  }
  expect(lines).toEqual([
    expect.stringMatching(/^the delegate key expires on 2026-04-01; create a new one with otela-agent vouch /),
    expect.stringMatching(
      /^clients that pin eth cannot encrypt requests to this node: the delegate key expired on 2026-04-01; /,
    ),
  ]);
});

it('says that a delegate is of another provider than the join token', () => {
  const { lines, seals } = sealsOf(90);
  expect(seals.recordPart(named).seal?.vouch).toBeDefined();
  expect(lines).toEqual([]);
  expect(seals.recordPart({ ...named, provider: 'lab' }).seal?.vouch).toBeUndefined();
  expect(lines).toEqual([
    expect.stringMatching(/^clients that pin lab .*: the delegate key belongs to eth, but the join token to lab/),
  ]);
});
