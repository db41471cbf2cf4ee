import { beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { seedKey } from '../accounts/seed.ts';
import { good, knock, refusal } from './support.ts';

let operator: string;
let consumer: string;
beforeAll(async () => {
  operator = (await seedKey('operator')).key;
  consumer = (await seedKey('consumer')).key;
});

const anything = z.looseObject({});
const put = (path: string, body: unknown, key = operator) => knock('PUT', `/admin/model-cards/${path}`, { key, body });
const cards = z.object({ data: z.array(z.looseObject({ id: z.string() })) });

test('an operator describes a model, and everybody reads it; what a PUT leaves out is not told', async () => {
  const card = { description: 'Small and **quick**.', license: 'Apache-2.0', size: '8B', context_length: 32_768 };
  const more = {
    input: ['text', 'image'],
    output: ['text'],
    tools: true,
    reasoning: false,
    url: 'https://example.org/m',
  };
  await good(put('org/small', { ...card, ...more }), anything);
  const { data } = await good(knock('GET', '/admin/model-cards', { key: consumer }), cards);
  expect(data.find(({ id }) => id === 'org/small')).toMatchObject({ ...card, ...more });
  const empty = { description: '', license: '', context_length: null, input: [], tools: null, url: null };
  expect(await good(put('org/small', {}), anything)).toMatchObject(empty);
});

test('a card is deleted once', async () => {
  await good(put('org/gone', { size: '1B' }), anything);
  const remove = () => good(knock('DELETE', '/admin/model-cards/org/gone', { key: operator }), anything);
  expect([(await remove()).deleted, (await remove()).deleted]).toEqual([true, false]);
});

test.each([
  ['an address that a browser would run', { url: 'javascript:alert(1)' }, 'url'],
  ['an address without TLS', { url: 'http://example.org' }, 'url'],
  ['a sense that no model has', { input: ['smell'] }, 'input.0'],
  ['a licence of two lines', { license: 'MIT\nor not' }, 'license'],
  ['a book', { description: 'x'.repeat(4_001) }, 'description'],
])('a card cannot have %s', async (_, body, param) => {
  expect((await refusal(put('m', body), 400, 'invalid_request')).param).toBe(param);
});

test('a consumer cannot describe a model', async () => {
  await refusal(put('m', {}, consumer), 403, 'permission_denied');
});
