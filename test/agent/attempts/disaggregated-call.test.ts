/** The memory that a pair of engines uses; the test plays the engines. */
import { expect, it } from 'vitest';
import { DisaggregatedCall } from '../../../agent/attempts/disaggregated-call.ts';
import type { EngineEvents } from '../../../agent/attempts/engine-call.ts';
import type { EngineClient } from '../../../agent/attempts/engine-client.ts';
import { PairState } from '../../../agent/attempts/prefill-engines.ts';
import { endpointById } from '../../../shared/openai/endpoints.ts';
import { openingFrame } from '../../support/tunnel/hand-gateway.ts';

const MIB = 2 ** 20;

/** An engine that answers each request by `answer`. */
function engine(answer: (events: EngineEvents) => void, aborted = () => {}): EngineClient {
  const client = {
    target: { origin: 'http://127.0.0.1:1', pathPrefix: '', engine: 'sglang' },
    send: (_open: unknown, _endpoint: unknown, _request: unknown, _length: number, events: EngineEvents) => {
      queueMicrotask(() => answer(events));
      return { pause: () => {}, resume: () => {}, abort: aborted };
    },
  };
  return client as unknown as EngineClient;
}

it('requests that the prefill engine refuses leave nothing behind: the pair takes as many as come', async () => {
  const prefill = engine(({ onHead, onData, onEnd }) => {
    onHead(400, [], true);
    onData(Buffer.from('{}'));
    onEnd();
  });
  const target = { origin: 'http://127.0.0.1:2', pathPrefix: '', bootstrapPort: 1 };
  const pair = new PairState({ target, prefill, log: () => {} });
  const endpoint = endpointById(1);
  if (endpoint === undefined) throw new Error('no endpoint');
  // After the abort it reports nothing more.
  const decode = engine(() => {});
  for (let n = 0; n < 300; n++) {
    const ended = Promise.withResolvers<string>();
    const body = Buffer.from(`{"model":"m","pad":"${'x'.repeat(MIB)}"}`);
    new DisaggregatedCall({
      decode,
      pair,
      open: openingFrame(n),
      endpoint,
      events: {
        onHead: () => {},
        onData: () => {},
        onEnd: () => ended.resolve('answered'),
        onError: (code) => ended.resolve(code),
      },
    }).start(body);
    expect(await ended.promise).toBe('answered');
  }
  expect(pair.hold(255 * MIB)).toBe(true);
});

it.each([
  [500, true],
  [503, true],
  [400, false],
  [200, false],
])('after status %i of the prefill engine of SGLang, it is avoided: %s', async (status, avoided) => {
  const prefill = engine((events) => refuse(status, events));
  const target = { origin: 'http://127.0.0.1:2', pathPrefix: '', bootstrapPort: 1 };
  const log: string[] = [];
  const pair = new PairState({ target, prefill, log: (line) => log.push(line) });
  const endpoint = endpointById(1);
  if (endpoint === undefined) throw new Error('no endpoint');
  const ended = Promise.withResolvers<void>();
  const done = () => ended.resolve();
  const events = { onHead: () => {}, onData: () => {}, onEnd: done, onError: done };
  const decode = engine((one) => status === 200 && refuse(200, one));
  new DisaggregatedCall({ decode, pair, open: openingFrame(1), endpoint, events }).start(Buffer.from('{"model":"m"}'));
  await ended.promise;
  await new Promise((resolve) => setImmediate(resolve));
  expect([pair.isAvoided, log.length]).toEqual([avoided, avoided ? 1 : 0]);
});

const refuse = (status: number, { onHead, onEnd }: EngineEvents) => {
  onHead(status, [], true);
  onEnd();
};

it.each<[string, (events: EngineEvents) => void, string[]]>([
  ['cannot be reached', ({ onError }) => onError('engine_unreachable', 'refused'), ['engine_unreachable']],
  ['refuses the request', (events) => refuse(503, events), ['503', 'end']],
])(
  'a decode engine that %s ends the work of the prefill engine, which reports nothing more',
  async (_, failing, seen) => {
    let abortions = 0;
    const refusals: (() => void)[] = [];
    const prefill = engine(
      (events) => refusals.push(() => refuse(500, events)),
      () => abortions++,
    );
    const target = { origin: 'http://127.0.0.1:2', pathPrefix: '', bootstrapPort: 1 };
    const pair = new PairState({ target, prefill, log: () => {} });
    const endpoint = endpointById(1);
    if (endpoint === undefined) throw new Error('no endpoint');
    const got: string[] = [];
    new DisaggregatedCall({
      decode: engine(failing),
      pair,
      open: openingFrame(1),
      endpoint,
      events: {
        onHead: (status) => got.push(String(status)),
        onData: () => {},
        onEnd: () => got.push('end'),
        onError: (code) => got.push(code),
      },
    }).start(Buffer.from('{"model":"m"}'));
    await new Promise((resolve) => setImmediate(resolve));
    for (const answer of refusals) answer();
    expect([got, abortions]).toEqual([seen, 1]);
    expect(pair.hold(256 * MIB)).toBe(true);
  },
);
