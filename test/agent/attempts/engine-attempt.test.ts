import { expect, test } from 'vitest';
import { EngineAttempt, type EngineAttemptHost } from '../../../agent/attempts/engine-attempt.ts';
import type { EngineEvents } from '../../../agent/attempts/engine-call.ts';
import type { EngineClient } from '../../../agent/attempts/engine-client.ts';
import { type Endpoint, endpointById } from '../../../shared/openai/endpoints.ts';
import { readFrames } from '../../../shared/wire/frame-codec.ts';
import { FrameMeter } from '../../../shared/wire/frame-limits.ts';
import type { Frame } from '../../../shared/wire/frames.ts';
import { Link } from '../../../shared/wire/link.ts';
import { openingFrame } from '../../support/tunnel/hand-gateway.ts';

/** An attempt at an engine that the test plays, on a link with turns that the test runs. */
function started() {
  const messages: Frame['type'][][] = [];
  let turns: (() => void)[] = [];
  const send = (message: Uint8Array) => {
    const types: Frame['type'][] = [];
    readFrames(message, ({ type }) => types.push(type));
    messages.push(types);
  };
  const port = { send, busy: () => false, schedule: (turn: () => void) => turns.push(turn), stuck: () => {} };
  const link = new Link(port, { send: 1 << 20, receive: 1 << 20 }, new FrameMeter(() => 0));
  const host: EngineAttemptHost = {
    tail: () => 0,
    reads: () => 0,
    now: () => 0,
    patientNow: () => 0,
    usageOptions: () => 'taken',
    onHead: () => {},
    onFirstToken: () => {},
    onReport: () => {},
    onPrompt: () => {},
    onIdle: () => {},
  };
  let engine: EngineEvents | undefined;
  const client = {
    call: (...args: unknown[]) => {
      engine = args[4] as EngineEvents;
      return { pause: () => {}, resume: () => {}, abort: () => {} };
    },
  };
  const attempt = new EngineAttempt(openingFrame(1, { streaming: true }), endpointById(1) as Endpoint, host);
  attempt.bind(link);
  attempt.start(client as unknown as EngineClient);
  if (engine === undefined) throw new Error('the engine was not called');
  const turn = () => {
    const now = turns;
    turns = [];
    for (const run of now) run();
    return messages.splice(0);
  };
  turn();
  return { engine, turn };
}

test('a head leaves with the first token if the engine sent both, and one turn later if it did not', () => {
  const headers = [['content-type', 'text/event-stream']] as const;
  const fast = started();
  fast.engine.onHead(200, headers, false);
  expect(fast.turn()).toEqual([]);
  fast.engine.onData(Buffer.from('data: {}\n\n'));
  expect(fast.turn()).toEqual([['head', 'data']]);
  const slow = started();
  slow.engine.onHead(200, headers, false);
  expect([slow.turn(), slow.turn()]).toEqual([[], [['head']]]);
});
