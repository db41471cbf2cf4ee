import { expect, test } from 'vitest';
import { TokenEstimator, type TokenForecast } from '../../../gateway/accounts/limits/token-estimator.ts';

const ask = (more: Partial<TokenForecast> = {}): TokenForecast => ({
  bodyBytes: 400,
  maxTokens: undefined,
  counts: 'answer',
  ...more,
});

function taught(answers: number, completion: number, maxTokens?: number): TokenEstimator {
  const estimator = new TokenEstimator();
  for (let n = 0; n < answers; n++) estimator.learn(ask({ maxTokens }), { prompt: 50, completion });
  return estimator;
}

test('without a past a request may use what its body and max_tokens say', () => {
  const fresh = new TokenEstimator();
  expect(fresh.estimate(ask({ maxTokens: 70 }))).toBe(100 + 70);
  expect(fresh.estimate(ask({ bodyBytes: undefined, maxTokens: 70 }))).toBe(1_024 + 70);
  expect(fresh.estimate(ask({ bodyBytes: 32 * 1024 * 1024, counts: 'prompt' }))).toBe(131_072);
  expect(fresh.estimate(ask({ counts: 'prompt', maxTokens: 70 }))).toBe(100);
  expect(fresh.estimate(ask({ counts: 'nothing' }))).toBe(0);
});

test('an answer without a bound may take a sixteenth of the minute at first, from 256 to 1,024 tokens', () => {
  const fresh = new TokenEstimator();
  for (const [limit, answer] of [
    [1_000, 256],
    [8_000, 500],
    [1_000_000, 1_024],
  ] as const)
    expect(fresh.estimate(ask(), limit)).toBe(100 + answer);
});

test('from three responses on, the mean of the key and its tokens per byte are used', () => {
  expect(taught(3, 90).estimate(ask())).toBe(50 + 90);
  expect(taught(1, 90, 500).estimate(ask({ maxTokens: 500 }))).toBe(50 + 295); // half a guess
});

test('never more than max_tokens, and in proportion where a request allows much more than the others', () => {
  const estimator = taught(10, 90, 100);
  expect(estimator.estimate(ask({ maxTokens: 20 }))).toBe(50 + 20);
  expect(estimator.estimate(ask({ maxTokens: 1_000 }))).toBe(50 + 900);
  expect(estimator.estimate(ask())).toBe(50 + 90);
});

test('what a key did long ago fades', () => {
  const estimator = taught(500, 1_000);
  for (let n = 0; n < 100; n++) estimator.learn(ask(), { prompt: 50, completion: 10 });
  expect(estimator.estimate(ask())).toBeLessThan(50 + 150);
});

test('an answer that its engine refused teaches nothing', () => {
  const estimator = taught(10, 90);
  estimator.learn(ask(), { prompt: 0, completion: 0 });
  expect(estimator.estimate(ask())).toBe(50 + 90);
});

test('it goes on from its state, and begins anew from a state that it cannot read', () => {
  const estimator = taught(5, 90);
  expect(new TokenEstimator(JSON.parse(JSON.stringify(estimator.state()))).estimate(ask())).toBe(140);
  expect(new TokenEstimator({ slots: [1] }).estimate(ask({ maxTokens: 10 }))).toBe(110);
});
