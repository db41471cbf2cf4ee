import { expect, test } from 'vitest';
import { NO_SETTINGS } from '../../../gateway/accounts/gateway-settings.ts';
import { kindAtArrival, learnAnswer } from '../../../gateway/routing/predict-request-kind.ts';
import { findEndpoint } from '../../../shared/openai/endpoints.ts';

const kinds = [
  { name: 'chat', input: 200, output: 300, share: 0.7 },
  { name: 'essay', input: 200, output: 3_000, share: 0.3 },
];
const settings = { ...NO_SETTINGS, models: { m: { kinds } } };
const asked = { method: 'POST', url: 'http://gateway/v1/chat/completions' };
const request = { model: 'm', priority: 'interactive' as const, inputTokens: 200 };
const found = findEndpoint('POST', '/v1/chat/completions');
const endpoint = found !== undefined && 'id' in found ? found.id : 0;
const learn = (model: string, keyId: string) => {
  for (let n = 0; n < 10; n++) learnAnswer({ model, keyId, endpoint, prompt: 200, completion: 3_000 });
};

test('a key without a history is judged by the published kinds, whatever other keys and models did', () => {
  learn('m', 'other key');
  learn('other model', 'key');
  expect(kindAtArrival(settings, request, asked, 'key')).toBe('chat');
});

test('a key with a history is judged by its own answers', () => {
  learn('m', 'writer');
  expect(kindAtArrival(settings, request, asked, 'writer')).toBe('essay');
});
