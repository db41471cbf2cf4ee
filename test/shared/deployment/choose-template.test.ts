import { expect, test } from 'vitest';
import { chooseTemplate } from '../../../shared/deployment/choose-template.ts';
import type { TemplateOffer } from '../../../shared/deployment/order-reply.ts';

const offers: TemplateOffer[] = [
  { template: 'fixed', parameters: {} },
  { template: 'llama', parameters: { model: { type: 'string', allow: ['meta/*'] } } },
  {
    template: 'qwen',
    parameters: {
      model: { type: 'string', allow: ['qwen/*'] },
      tp: { type: 'integer', min: 1, max: 4 },
    },
  },
];
const NONE = { template: undefined, parameters: {} };

test('the first template that accepts the model and all other values is chosen', () => {
  expect(chooseTemplate(offers, 'meta/a', NONE)).toEqual({ template: 'llama', parameters: { model: 'meta/a' } });
  expect(chooseTemplate(offers, 'qwen/a', { template: undefined, parameters: { tp: 4 } })).toEqual({
    template: 'qwen',
    parameters: { model: 'qwen/a', tp: 4 },
  });
});

test('a parameter cannot replace the model that the caller was allowed to name', () => {
  const parameters = { model: 'qwen/other', tp: 1 };
  expect(chooseTemplate(offers, 'qwen/a', { template: undefined, parameters }).parameters.model).toBe('qwen/a');
});

test.each([
  ['qwen/a', NONE, /template fixed: unknown parameter model.*template qwen: tp is missing/],
  ['meta/../x', NONE, /path segment/],
  ['http://evil/x', NONE, /not allowed/],
  ['meta/a', { template: 'rm', parameters: {} }, /no template rm \(known: fixed, llama, qwen\)/],
  ['meta/a', { template: 'llama', parameters: { argv: 'sh' } }, /unknown parameter argv/],
])('%s is refused with the reason', (model, how, reason) => {
  expect(() => chooseTemplate(offers, model, how)).toThrow(reason);
});
