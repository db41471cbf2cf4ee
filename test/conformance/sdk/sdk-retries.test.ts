/** SDKs send a failed request twice more by themselves. What the gateway has repeated already, or waited for, is not to be multiplied by that. */
import OpenAI from 'openai';
import { afterEach, expect, it } from 'vitest';
import { chatBody, type House, MODEL, openHouse } from '../../support/house.ts';
import { endAll, eventually } from '../../support/processes.ts';

afterEach(endAll);

const ask = (house: House) =>
  new OpenAI({ baseURL: house.base, apiKey: house.key, maxRetries: 2 }).chat.completions.create({
    model: MODEL,
    messages: [{ role: 'user', content: 'Say something.' }],
  });
const asked = (house: House) =>
  house.engines.flatMap(({ requests }) => requests).filter(({ url }) => url.endsWith('/completions')).length;

it('a request that breaks every engine that takes it breaks each of three once', async () => {
  const house = await openHouse({ nodes: 3 });
  for (const engine of house.engines) engine.control({ fault: 'reset', afterTokens: 2 });
  await expect(ask(house)).rejects.toMatchObject({ status: 502, code: 'upstream_error' });
  expect(asked(house)).toBe(3);
});

it('a request that the only engine broke off is sent again by the SDK, and answered', async () => {
  const house = await openHouse();
  house.engine.control({ fault: 'reset', afterTokens: 2 }, 1);
  expect((await ask(house)).choices[0]?.message.content).toContain('stand-in');
  expect(asked(house)).toBe(2);
});

it('a request that an engine did not begin to answer in time is not sent again', async () => {
  const house = await openHouse();
  await house.gateway.admin('PUT', `models/${encodeURIComponent(MODEL)}`, { first_byte_ms: 1_500 });
  house.engine.control({ fault: 'never' });
  await eventually('the time-out of the model is known', 20_000, async () => {
    const init = { signal: AbortSignal.timeout(4_000) };
    const response = await house.ask('/v1/chat/completions', chatBody({}), init).catch(() => undefined);
    return response?.status === 504 ? true : undefined;
  });
  const before = asked(house);
  await expect(ask(house)).rejects.toMatchObject({ status: 504, code: 'upstream_timeout' });
  expect(asked(house) - before).toBe(1);
});
