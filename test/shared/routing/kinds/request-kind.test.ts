import fc from 'fast-check';
import { expect, test } from 'vitest';
import { LengthPredictor } from '../../../../shared/routing/kinds/length-predictor.ts';
import { classifyRequest, nearestKind, type RequestKind } from '../../../../shared/routing/kinds/request-kind.ts';

const KINDS: RequestKind[] = [
  { name: 'chat', input: 200, output: 300, share: 0.6 },
  { name: 'essay', input: 200, output: 3_000, share: 0.1 },
  { name: 'document', input: 9_000, output: 100, share: 0.3 },
];
const NOTHING = { output: 256, seen: 0 };

test('without a history the prompt decides, and of kinds with like prompts the frequent one', () => {
  expect(classifyRequest(KINDS, { input: 8_000 }, NOTHING)?.name).toBe('document');
  expect(classifyRequest(KINDS, { input: 150 }, NOTHING)?.name).toBe('chat');
});

test('max_tokens excludes the kind whose answers it would cut', () => {
  const kinds = KINDS.map((kind) => ({ ...kind, share: kind.name === 'essay' ? 0.8 : 0.1 }));
  expect(classifyRequest(kinds, { input: 200 }, NOTHING)?.name).toBe('essay');
  expect(classifyRequest(kinds, { input: 200, maxTokens: 250 }, NOTHING)?.name).toBe('chat');
});

test('a key whose answers were long is judged by them', () => {
  const predictor = new LengthPredictor();
  const asked = { input: 200, endpoint: '/v1/chat/completions', sender: 'key_1 m' };
  for (let i = 0; i < 10; i++) predictor.learn(asked, 2_800);
  expect(classifyRequest(KINDS, asked, predictor.predict(asked))?.name).toBe('essay');
  // The history of the key does not outweigh what the request allows.
  const brief = { ...asked, maxTokens: 200 };
  expect(classifyRequest(KINDS, brief, predictor.predict(brief))?.name).toBe('chat');
});

test('a model without kinds has none for any request', () => {
  expect(classifyRequest([], { input: 1 }, NOTHING)).toBeUndefined();
  expect(nearestKind([], { input: 1, output: 1 })).toBeUndefined();
});

const tokens = fc.integer({ min: 1, max: 1_000_000 });
const kinds = fc.array(
  fc.record({ name: fc.string(), input: tokens, output: tokens, share: fc.double({ min: 0, max: 1, noNaN: true }) }),
  { minLength: 1, maxLength: 12 },
);

test('every request gets one of its model’s kinds, for any numbers', () => {
  const odd = fc.oneof(tokens, fc.constant(0), fc.constant(Number.MAX_SAFE_INTEGER));
  const asked = fc.record({ input: odd, maxTokens: fc.option(odd, { nil: undefined }) });
  const answer = fc.record({ output: odd, seen: fc.nat(20) });
  fc.assert(
    fc.property(kinds, asked, answer, (all, request, prediction) => {
      expect(all).toContain(classifyRequest(all, request, prediction));
    }),
  );
});

test('a request whose answer is predicted exactly is judged as it turns out', () => {
  fc.assert(
    fc.property(kinds, tokens, tokens, (all, input, output) => {
      expect(classifyRequest(all, { input }, { output, seen: 8 })).toBe(nearestKind(all, { input, output }));
    }),
  );
});

test('a kind is nearest to its own centre', () => {
  fc.assert(
    fc.property(kinds, fc.nat(), (all, at) => {
      const one = all[at % all.length] ?? { input: 1, output: 1 };
      const found = nearestKind(all, one);
      expect([found?.input, found?.output]).toEqual([one.input, one.output]);
    }),
  );
});
