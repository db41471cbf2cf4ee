/**
 * `npm run soak -- vllm`: all of `main.ts` with a real vLLM and a tiny model of random weights, without a GPU. Installs
 * both as `npm run test:engines` does. Additional flags are passed to vLLM.
 */
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { NODE, ROOT } from '../support/where.ts';
import { installVllm, makeCheckpoint, VLLM_ENVIRONMENT, VLLM_FLAGS, vllmProgram } from './engines/python-engines.ts';

await installVllm();
const model = await makeCheckpoint();
const child = spawn(
  NODE,
  [
    ...[join(ROOT, 'test/real/main.ts'), '--replicas', '3', '--'],
    ...[vllmProgram, 'serve', model, '--served-model-name', 'tiny', ...VLLM_FLAGS, '--port', '{port}'],
    ...process.argv.slice(2),
  ],
  // One thread each, so that three of them fit into a small machine.
  { stdio: 'inherit', env: { OMP_NUM_THREADS: '1', ...VLLM_ENVIRONMENT, ...process.env } },
);
child.once('exit', (code) => {
  process.exitCode = code ?? 1;
});
