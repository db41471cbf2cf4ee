import { expect, it } from 'vitest';
import { REALTIME } from '../../../../shared/openai/endpoints.ts';
import { encodeClose, encodeRecord, MESSAGE_RECORDS_TYPE } from '../../../../shared/openai/realtime/message-records.ts';
import { createUsageMeter } from '../../../../shared/openai/usage-meter.ts';

const meter = () =>
  createUsageMeter(REALTIME, { streaming: false, dropUsageEvent: false, contentType: MESSAGE_RECORDS_TYPE });
const text = (message: unknown) => encodeRecord('text', Buffer.from(JSON.stringify(message)));
const usage = { total_tokens: 12, input_tokens: 7, output_tokens: 5, input_tokens_details: { cached_tokens: 2 } };

it('adds up the usage of all responses and transcriptions, and passes every byte on', () => {
  const counted = meter();
  const stream = Buffer.concat([
    encodeRecord('opened'),
    text({ type: 'response.done', response: { usage } }),
    text({ type: 'response.done', response: { usage: null } }),
    text({ type: 'response.created', response: { usage } }),
    text({ type: 'transcription.done', usage: { prompt_tokens: 100, completion_tokens: 3 } }),
    encodeRecord('binary', Buffer.from('{"type":"response.done","usage":{"input_tokens":1}}')),
    text('"usage"'),
    encodeClose(1000),
  ]);
  const passed = [...stream].flatMap((byte) => counted.push(Uint8Array.of(byte)));
  expect(Buffer.concat(passed)).toEqual(stream);
  expect(counted.end()).toMatchObject({
    complete: true,
    usage: { prompt: 107, completion: 8, cached: 2, estimated: false },
  });
});

it('a session without a close frame, or with bytes that are no messages, is not complete', () => {
  const cut = meter();
  cut.push(text({ type: 'response.done', response: { usage } }));
  expect(cut.end()).toMatchObject({ complete: false, usage: { prompt: 7, completion: 5 } });
  const wrong = meter();
  expect(wrong.push(Buffer.from('HTTP/1.1 200'))).toHaveLength(1);
  wrong.push(encodeClose(1000));
  expect(wrong.end()).toMatchObject({ complete: false, usage: { prompt: 0 } });
});
