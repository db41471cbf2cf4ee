import { createServer } from 'node:http';
import { expect, it, onTestFinished, vi } from 'vitest';
import { LoadMeter, readLoad } from '../../../agent/engine/engine-load.ts';
import { patience } from '../../support/patience.ts';

/** Written as vLLM 0.11 and SGLang 0.5 do, shortened. */
const VLLM = `# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="meta-llama/Llama-3.1-8B"} 7.0
vllm:num_requests_running{engine="1",model_name="a {curly} one"} 2.0
vllm:num_requests_waiting{engine="0",model_name="meta-llama/Llama-3.1-8B"} 3.0
vllm:num_requests_waiting{engine="1",model_name="a {curly} one"} 0.0
vllm:kv_cache_usage_perc{engine="0",model_name="meta-llama/Llama-3.1-8B"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="a {curly} one"} 0.75
vllm:num_requests_running_total 99
`;

it.each([
  ['vLLM: all its engines together, the fullest cache', VLLM, { running: 9, waiting: 3, kvUse: 0.75 }],
  [
    'an older vLLM',
    'vllm:num_requests_running 1\nvllm:gpu_cache_usage_perc 0.5\n',
    { running: 1, waiting: 0, kvUse: 0.5 },
  ],
  [
    'SGLang',
    'sglang:num_running_reqs{model_name="m"} 4.0\nsglang:num_queue_reqs{model_name="m"} 2.0\nsglang:token_usage{model_name="m"} 1.2\n',
    { running: 4, waiting: 2, kvUse: 1 },
  ],
  [
    'vLLM in Ray Serve',
    'ray_vllm:num_requests_running{WorkerId="a"} 8.0\nray_vllm:num_requests_waiting{WorkerId="a"} 50.0\nray_vllm:gpu_cache_usage_perc{WorkerId="a"} 0.9\n',
    { running: 8, waiting: 50, kvUse: 0.9 },
  ],
  [
    'vLLM in a newer Ray Serve, two replicas',
    'ray_vllm_num_requests_running{ReplicaId="a"} 8\nray_vllm_num_requests_running{ReplicaId="b"} 1\nray_vllm_num_requests_waiting{ReplicaId="a"} 50\nray_vllm_num_requests_waiting_by_reason{reason="capacity"} 50\n',
    { running: 9, waiting: 50 },
  ],
  [
    'SGLang behind OpenTelemetry',
    'sglang_num_running_reqs{model_name="m"} 4.0\nsglang_num_queue_reqs{model_name="m"} 50.0\nsglang_token_usage{model_name="m"} 0.5\n',
    { running: 4, waiting: 50, kvUse: 0.5 },
  ],
  [
    'one figure under two names once',
    'sglang:num_running_reqs 4\nsglang_num_running_reqs 4\nsglang:num_queue_reqs 50\nsglang_num_queue_reqs 50\n',
    { running: 4, waiting: 50 },
  ],
  [
    'LMDeploy',
    'lmdeploy:num_requests_running{engine="0"} 3.0\nlmdeploy:num_requests_waiting{engine="0"} 50.0\nlmdeploy:num_api_requests_waiting{engine="0"} 9\n',
    { running: 3, waiting: 50 },
  ],
  ['llama.cpp', 'llamacpp:requests_processing 1\nllamacpp:requests_deferred 50\n', { running: 1, waiting: 50 }],
  ['numbers that are none', 'vllm:num_requests_running NaN\nvllm:num_requests_waiting -3\n', undefined],
  ['some other program', 'go_goroutines 7\n', undefined],
  ['no metrics at all', '<html>', undefined],
])('reads %s', (_, text, load) => {
  expect(readLoad(text)).toEqual(load);
});

async function engineWith(metrics: () => string | undefined) {
  let asked = 0;
  const server = createServer((_, res) => {
    asked++;
    const text = metrics();
    res.writeHead(text === undefined ? 404 : 200);
    res.end(text);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  const meter = new LoadMeter(() => ({ origin: `http://127.0.0.1:${port}`, pathPrefix: '' }));
  onTestFinished(async () => {
    await meter.close();
    server.closeAllConnections();
    server.close();
  });
  return { meter, asked: () => asked };
}

it('tells what vLLM writes per second, from two looks, and nothing while nothing runs', async () => {
  const begun = performance.now();
  const written = () => Math.round(1e12 + 0.6 * (performance.now() - begun));
  const { meter, asked } = await engineWith(
    () => `vllm:num_requests_running 1\nvllm:generation_tokens_total{engine="0"} ${written()}\n`,
  );
  meter.begin();
  meter.look();
  await meter.settled();
  expect(meter.current.tokensPerSecond, 'one look tells no rate').toBeUndefined();
  // A look that follows the last one too soon reports none, either.
  const tokensPerSecond = await vi.waitFor(
    () => {
      meter.look();
      expect(meter.current.tokensPerSecond).toBeDefined();
      return meter.current.tokensPerSecond;
    },
    { timeout: patience(30_000) },
  );
  expect(asked()).toBeGreaterThan(1);
  // 600, with slack for a busy machine, which may read a response late.
  expect(tokensPerSecond).toBeGreaterThan(50);
  expect(tokensPerSecond).toBeLessThan(5_000);
  meter.end();
  expect(meter.current).toEqual({ running: 0, waiting: 0, tokensPerSecond: 0 });
});

it('adds to the engine’s word what came and went since', async () => {
  const { meter, asked } = await engineWith(() => 'vllm:num_requests_running 5\nvllm:num_requests_waiting 2\n');
  meter.begin();
  meter.look();
  await meter.settled();
  expect(meter.current).toEqual({ running: 5, waiting: 2 });
  meter.begin();
  meter.begin();
  expect(meter.current, 'while some wait the batch is full').toEqual({ running: 5, waiting: 4 });
  for (let n = 0; n < 3; n++) meter.end();
  expect(meter.current).toEqual({ running: 5, waiting: 1 });
  expect(asked()).toBe(1); // at most twice a second
});

it('counts for itself where the engine has no metrics, and does not go on asking', async () => {
  const { meter, asked } = await engineWith(() => undefined);
  for (let n = 0; n < 3; n++) meter.begin();
  meter.look();
  await meter.settled();
  expect(meter.current).toEqual({ running: 3, waiting: 0 });
  for (let n = 0; n < 3; n++) meter.end();
  expect(meter.current).toEqual({ running: 0, waiting: 0 });
  expect(asked()).toBe(1);
});

it('says what it counted while no engine answers', () => {
  const meter = new LoadMeter(() => undefined);
  meter.begin();
  expect(meter.current).toEqual({ running: 1, waiting: 0 });
});
