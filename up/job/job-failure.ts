/** Explains the end of a job that did not serve, by the last lines of its output. */
import type { Host } from '../host/host.ts';
import { type Run, runDirectory } from '../state/runs.ts';
import { UpError } from '../up-error.ts';

const LOG_LINES = 15;

/** Known causes, and what the user can do. Each matches the state and the last lines. */
const WAYS_ON: readonly { seen: RegExp; wayOn: (host: string, model: string) => string }[] = [
  {
    // The words of huggingface_hub and of transformers, and those of urllib3 and httpx below them.
    seen: /couldn't connect to 'https?:|huggingface\.co.*(?:unreachable|resolve|refused|timed out|max retries)|LocalEntryNotFoundError|OfflineModeIsEnabled/i,
    wayOn: (host, model) =>
      `The compute node has no way to the Internet. Run otela up ${model} --host ${host} again with --fetch: the weights are then fetched on ${host}, or on this machine, before the job starts.`,
  },
  {
    seen: /gated repo|GatedRepoError|401 Client Error/i,
    wayOn: (host, model) =>
      `Its authors allow downloads only after a login: accept the terms at https://huggingface.co/${model}, then run hf auth login on ${host}.`,
  },
  {
    seen: /disk quota exceeded|no space left on device/i,
    wayOn: () =>
      `The file system is full. Put the weights elsewhere: --setup 'export HF_HOME=/scratch/$USER/huggingface'.`,
  },
];

/** Slurm's state, the words of PyTorch and of llama.cpp, and those of vLLM for a KV cache that does not fit. */
const NO_MEMORY = /^OUT_OF_ME|out of memory|No available memory for the cache blocks|KV cache is needed/i;

interface EndedJob {
  run: Run;
  job: string;
  /** How it ended. */
  state: string;
  /** Settings that need less memory. @param said the last lines of the job */
  smaller(said: string): string;
}

export async function jobFailure(host: Pick<Host, 'output'>, ended: EndedJob): Promise<UpError> {
  const { run, job, state } = ended;
  const file = `"$HOME"/${runDirectory(run)}/${job}.log`;
  const tail = (await host.output(`tail -n ${LOG_LINES} ${file} 2>/dev/null || true`).catch(() => '')).trim();
  const happened = `The job ${job} ended before the model answered (${state}).${tail === '' ? '' : ` Its last lines:\n${tail}`}`;
  if (NO_MEMORY.test(`${state}\n${tail}`)) return new UpError(happened, ended.smaller(tail));
  const found = WAYS_ON.find(({ seen }) => seen.test(`${state}\n${tail}`));
  return new UpError(
    happened,
    found?.wayOn(run.host, run.model) ??
      'Correct what the lines say, then run otela up again. otela logs shows all lines.',
  );
}
