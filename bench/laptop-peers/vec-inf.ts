/**
 * vec-inf (Vector Institute) runs on the login node. The mock engine is a virtual environment with a program `vllm`,
 * which prints vLLM's line of a complete start, because vec-inf looks for it in the job's log.
 */
import { appendFile, chown, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Lab } from './lab.ts';
import { ask, forwarded, type Way } from './way.ts';

const VLLM = `#!/bin/bash
for word in "$@"; do [ "$last" = --port ] && port=$word; last=$word; done
"$HOME/bin/vllm" "$@" &
until curl -sf -o /dev/null http://127.0.0.1:$port/health; do sleep 0.1; done
echo 'INFO:     Application startup complete.' >&2
wait
`;

/** @param program path of `vec-inf` */
export const vecInf = (program: string): Way => ({
  name: 'vec-inf',
  once: ['export VEC_INF_ACCOUNT=…', 'export VEC_INF_WORK_DIR=…'],
  each: ['vec-inf launch', 'vec-inf status, until it says READY', 'ssh -L', 'curl'],
  end: ['vec-inf shutdown', 'kill ssh'],
  prepare: (lab) => prepare(lab, program),
  script: (port) => `launched=$(ssh cluster 'vec-inf launch Qwen3-8B --json-mode --venv ~/venv \\
  --model-weights-parent-dir ~/weights --resource-type h100 --cpus-per-task 1 --mem-per-node 1G --time 10')
job=$(jq -r .slurm_job_id <<<"$launched")
until status=$(ssh cluster "vec-inf status $job --json-mode") && [ "$(jq -r .model_status <<<"$status")" = READY ]; do
  sleep 2
done
at=$(jq -r '.base_url | ltrimstr("http://") | rtrimstr("/v1")' <<<"$status")
ssh -N -L ${port}:$at cluster &
${forwarded(port, 0.2)}
${ask(`http://127.0.0.1:${port}/v1`)}
ssh cluster "vec-inf shutdown $job" >/dev/null
kill %1`,
});

async function prepare({ laptop }: Lab, program: string): Promise<void> {
  const { home, uid, gid } = laptop.user;
  for (const path of ['venv', 'venv/bin', 'weights', 'weights/Qwen3-8B']) {
    await mkdir(join(home, path), { recursive: true });
    await chown(join(home, path), uid, gid);
  }
  await writeFile(join(home, 'bin/vec-inf'), `#!/bin/sh\nexec ${program} "$@"\n`, { mode: 0o755 });
  await writeFile(join(home, 'venv/bin/activate'), `PATH="$HOME/venv/bin:$PATH"\n`);
  await writeFile(join(home, 'venv/bin/vllm'), VLLM, { mode: 0o755 });
  await appendFile(join(home, '.bashrc'), `\nexport VEC_INF_ACCOUNT=lab VEC_INF_WORK_DIR="$HOME"\n`);
}
