/** Offers after an engine ran out of memory. */
import { expect, it } from 'vitest';
import { smallerSettings } from '../../up/job/smaller-settings.ts';

type Tried = Parameters<typeof smallerSettings>[0];
const TRIED: Tried = { engine: 'vllm', arguments: [], gpus: 1, gpusPerNode: 4 };
const OOM = 'torch.OutOfMemoryError: CUDA out of memory.';
const KV =
  'ValueError: To serve at least one request with the models’s max seq len (40960), 5.6 GiB KV cache is needed. Based on the available memory, the estimated maximum model length is 12345.';

it.each<[Partial<Tried>, string, RegExp]>([
  [{}, OOM, /Try --engine-argument=--max-model-len=8192 or --gpus 2; otherwise a quantized model/],
  [{ arguments: ['--max-model-len=8192'], gpus: 2 }, OOM, /=--max-model-len=4096 or --gpus 4;/],
  [{ arguments: ['--max-model-len', '4096'], gpus: 4 }, OOM, /Try --engine-argument=--max-model-len=2048; otherwise/],
  [{ arguments: ['--max-model-len=2048'], gpus: 4 }, OOM, /Try a quantized model, or a partition/],
  [{}, KV, /=--max-model-len=12288 or/],
  [{ arguments: ['--max-model-len=8192'] }, KV, /Try --gpus 2;/],
  [{ engine: 'sglang', gpus: 3 }, OOM, /--engine-argument=--context-length=8192 or --gpus 4/],
  [{ engine: 'llama', gpusPerNode: 1 }, OOM, /--engine-argument=--ctx-size=8192; otherwise/],
  [{ engine: undefined }, OOM, /Try --gpus 2; otherwise/],
])('after %j', (tried, said, words) => {
  expect(smallerSettings({ ...TRIED, ...tried }, said)).toMatch(words);
});
