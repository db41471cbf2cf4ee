/** The memory that a pair of engines uses; the test plays the engines. */
import { expect, it } from 'vitest';
import { DisaggregatedCall, PairState } from '../../../agent/attempts/disaggregated-call.ts';
import type { EngineEvents } from '../../../agent/attempts/engine-call.ts';
import type { EngineClient } from '../../../agent/attempts/engine-client.ts';
import { endpointById } from '../../../shared/openai/endpoints.ts';
import { openingFrame } from '../../support/tunnel/hand-gateway.ts';

const MIB = 2 ** 20;

/** An engine that answers each request by `answer`. */
function engine(answer: (events: EngineEvents) => void): EngineClient {
  const client = {
    target: { origin: 'http://127.0.0.1:1', pathPrefix: '', engine: 'sglang' },
    send: (_open: unknown, _endpoint: unknown, _request: unknown, _length: number, events: EngineEvents) => {
      queueMicrotask(() => answer(events));
      return { pause: () => {}, resume: () => {}, abort: () => {} };
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
  const pair = new PairState(target, prefill, () => {});
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
