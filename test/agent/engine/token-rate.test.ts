import { expect, test } from 'vitest';
import { TokenRate } from '../../../agent/engine/token-rate.ts';

const vllm = (...counters: number[]) =>
  counters.map((n, engine) => `vllm:generation_tokens_total{engine="${engine}",model_name="a {b}"} ${n}\n`).join('');

test('is the growth of vLLM’s counters over the time between two readings', () => {
  const rate = new TokenRate();
  expect(rate.observe(vllm(100, 50), 0)).toBeUndefined();
  expect(rate.observe(vllm(150, 100), 1_000)).toBe(100);
  expect(rate.observe(vllm(150, 100), 2_000)).toBe(0);
  expect(rate.observe(vllm(650, 100), 2_500)).toBe(1_000);
});

test('two readings in one breath say what was known before', () => {
  const rate = new TokenRate();
  rate.observe(vllm(0), 0);
  expect(rate.observe(vllm(80), 1_000)).toBe(80);
  expect(rate.observe(vllm(90), 1_010)).toBe(80);
  expect(rate.observe(vllm(180), 2_000)).toBe(100);
});

test('a pause and a new start of the engine are no rate', () => {
  const rate = new TokenRate();
  rate.observe(vllm(1_000), 0);
  expect(rate.observe(vllm(2_000), 60_000)).toBeUndefined();
  expect(rate.observe(vllm(5), 61_000)).toBeUndefined();
  expect(rate.observe(vllm(25), 62_000)).toBe(20);
});

test('SGLang says it itself', () => {
  const rate = new TokenRate();
  const text = 'sglang:generation_tokens_total{model_name="m"} 7\nsglang:gen_throughput{model_name="m"} 86.5\n';
  expect(rate.observe(text, 0)).toBe(86.5);
});

test('an engine without either tells nothing', () => {
  const rate = new TokenRate();
  expect(rate.observe('vllm:num_requests_running 3\nvllm:generation_tokens_total NaN\n', 0)).toBeUndefined();
  expect(rate.observe('go_goroutines 7\n', 1_000)).toBeUndefined();
});
