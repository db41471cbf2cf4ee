/** `otela up`: serves a model from the user's own cluster. */

import { commandRunner } from '../../node/command-runner.ts';
import { type Command, EXIT_DONE, parseLine } from '../../shared/command-line/index.ts';
import type { Output } from '../../shared/terminal/command-output.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { inBackground } from '../../shared/timing/in-background.ts';
import { LocalGateway } from '../gateway/local-gateway.ts';
import { findPlace, kubernetesHost } from '../host/kubernetes/place.ts';
import { isLocked, takeRunLock } from '../state/run-lock.ts';
import { RUNS_MAX, type Run, Runs, StoredRun } from '../state/runs.ts';
import { stateDirectory } from '../state/state-directory.ts';
import { tunnelIdentity } from '../tunnel/tunnel-identity.ts';
import { UpError } from '../up-error.ts';
import { endRun } from './down-command.ts';
import { accessJson } from './ready-text.ts';
import { RunServer } from './serve-run.ts';
import { requireFitting, UP_FLAGS, upWish } from './up-flags.ts';

export const UP_COMMAND: Command<Output> = {
  summary: 'serve a model on your own cluster, workstation or this machine',
  examples: `MODEL [--host HOST] [--partition NAME] [--account NAME] [--gpus N] [--time TIME] [-- COMMAND…]

Connects with your own ssh, installs one file below ~/.otela of the host, starts a gateway on 127.0.0.1, submits a Slurm job, and prints the
URL and the API key as soon as the model answers. The job continues if this command ends; the same command comes back to it. If the host has
no Slurm, the engine is a process there. Without --host, it is a process of this machine; with --kubernetes, of a pod.
  otela up Qwen/Qwen3-8B --host me@login.example.org
  otela up Qwen/Qwen3-8B --host cluster --setup 'module load vllm' --account ml --time 08:00:00
  otela up Qwen/Qwen3-8B --host cluster --keep 3d
  otela up model.gguf
  otela up Qwen/Qwen3-8B --kubernetes --namespace ml
  otela up my-model --host cluster -- llama-server -m model.gguf --port {{port}}`,
  flags: UP_FLAGS,
  run: upCommand,
};

async function upCommand(args: readonly string[], out: Output): Promise<number> {
  const { values, words, command } = parseLine(args, UP_FLAGS, { words: 1 });
  requireFitting(values);
  const cluster = values.kubernetes ? kubernetesHost(await findPlace(commandRunner(), values)) : undefined;
  const wish = upWish(values, words, command, cluster);
  const state = stateDirectory();
  const [runs, gateway] = [new Runs(state), new LocalGateway(state)];
  const found = runs.find(wish.host, wish.model);
  const run = found ?? newRun(runs, wish);
  const ends = new AbortController();
  const lock = await takeRunLock(runs.socketOf(run), () => ends.abort());
  if (lock === undefined) {
    out.complain(
      `${wish.model} on ${wish.host} is already up in another process of this machine. otela ls shows its URL.`,
    );
    const url = wish.json ? await gateway.runningUrl() : undefined;
    if (url !== undefined) out.print(accessJson({ url, key: await gateway.apiKey(), model: wish.model }));
    return EXIT_DONE;
  }
  const end = () => ends.abort();
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, end);
  const server = new RunServer({
    run: new StoredRun(runs, run),
    wish,
    gateway,
    identity: tunnelIdentity(state),
    out,
    signal: ends.signal,
  });
  try {
    await server.serve();
    return EXIT_DONE;
  } finally {
    lock.release();
    // Otherwise otela down would try forever to connect to a host that does not exist.
    if (found === undefined && !server.hasReachedHost) runs.remove(run);
    if (wish.endsJob && server.hasSubmitted) await endJob(runs, run.id, gateway, out);
    await leave(runs, gateway, out);
  }
}

/** Ends the run's job, unless `otela down` has done it. */
async function endJob(runs: Runs, id: string, gateway: LocalGateway, out: Output): Promise<void> {
  const run = runs.list().find((one) => one.id === id);
  if (run === undefined) return;
  out.complain(run.job === undefined ? 'ending the pod' : `ending the job ${run.job}`);
  await endRun(run, runs, gateway, false).catch((error: unknown) =>
    out.complain(`The job may continue: ${errorText(error)} otela down ends it.`),
  );
}

/** @throws UpError if there are too many */
function newRun(runs: Runs, { host, model }: { host: string; model: string }): Run {
  if (runs.list().length >= RUNS_MAX)
    throw new UpError(`There are ${RUNS_MAX} runs, which is the maximum.`, 'End one with otela down MODEL.');
  return runs.create(host, model, new Date());
}

/** The last run that ends also ends the gateway. */
async function leave(runs: Runs, gateway: LocalGateway, out: Output): Promise<void> {
  const others = await Promise.all(runs.list().map((run) => isLocked(runs.socketOf(run))));
  if (others.includes(true)) return;
  inBackground('the gateway', gateway.stop(), out.complain);
}
