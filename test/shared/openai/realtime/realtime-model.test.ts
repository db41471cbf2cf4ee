import { expect, it } from 'vitest';
import { keyInProtocols } from '../../../../shared/openai/realtime/realtime-key.ts';
import { messageForEngine } from '../../../../shared/openai/realtime/realtime-model.ts';

const check = (message: object | string, served = 'org/model') =>
  messageForEngine(typeof message === 'string' ? message : JSON.stringify(message), 'short', served);

it('the session’s model gets the name that the node uses, wherever a message names it', () => {
  expect(check({ type: 'session.update', model: 'short' })).toBe('{"type":"session.update","model":"org/model"}');
  expect(check({ session: { model: 'short' } })).toBe('{"session":{"model":"org/model"}}');
  expect(check({ response: { model: 'org/model' } })).toBe('{"response":{"model":"org/model"}}');
});

it('no spelling of another model passes', () => {
  for (const other of [
    { model: 'other' },
    { model: 'short', session: { model: 'other' } },
    '{"model":"short","model":"other"}',
    '{"mod\\u0065l":"other"}',
    { model: ['short'] },
    { model: null },
  ])
    expect(check(other)).toBeUndefined();
});

it('every other message passes unchanged, byte for byte', () => {
  for (const text of [
    '{ "type" : "input_audio_buffer.append","audio":"AAAA" }',
    'no JSON',
    '"model"',
    '{"item":{"model":"x"}}',
  ])
    expect(check(text)).toBe(text);
  expect(check('{ "model":"short" }', 'short')).toBe('{ "model":"short" }');
});

it('the key of a browser is found among the subprotocols', () => {
  expect(keyInProtocols('realtime, openai-insecure-api-key.sk-1, openai-beta.realtime-v1')).toBe('sk-1');
  expect([keyInProtocols(null), keyInProtocols('realtime')]).toEqual([undefined, undefined]);
});
