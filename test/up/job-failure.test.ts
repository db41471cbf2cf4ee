/** The last lines of a job that failed, and the way on. */
import { expect, it } from 'vitest';
import { jobFailure } from '../../up/job/job-failure.ts';

const RUN = { id: 'abcd1234', host: 'me@login', model: 'org/model', started: '2026-11-27T10:00:00Z' };

it.each([
  ['OUT_OF_MEMORY', 'slurmstepd: killed', /smaller than slurmstepd: killed/],
  ['FAILED', 'torch.OutOfMemoryError: CUDA out of memory.', /smaller than torch/],
  ['FAILED', 'ValueError: No available memory for the cache blocks.', /smaller than ValueError/],
  [
    'FAILED',
    "OSError: We couldn't connect to 'https://huggingface.co' to load the files",
    /otela up org\/model --host me@login again with --fetch/,
  ],
  [
    'FAILED',
    "HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded with url: /x (Caused by NewConnectionError)",
    /again with --fetch/,
  ],
  ['FAILED', 'You are trying to access a gated repo.', /hf auth login on me@login/],
  ['exit code 1', 'OSError: [Errno 122] Disk quota exceeded', /HF_HOME=/],
  ['FAILED', 'ValueError: unknown architecture', /Correct what the lines say/],
  ['NODE_FAIL', '', /^The job 7 ended before the model answered \(NODE_FAIL\)\.\nCorrect/],
])('%s: %s', async (state, line, words) => {
  const { message } = await jobFailure(
    { output: async () => line },
    { run: RUN, job: '7', state, smaller: (said) => `smaller than ${said}` },
  );
  expect(message).toMatch(words);
  expect(message).toContain(line);
});
