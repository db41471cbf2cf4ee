/** `otela-agent metrics`: one agent's figures, as Prometheus and its node exporter's text files take them. */
import { ask } from '../host/control-client.ts';
import { oneAgent, SESSION_FLAG } from './choose.ts';
import { EXIT_DONE } from './exit.ts';
import { type FlagSpec, parseFlags } from './flags.ts';
import type { Io } from './io.ts';
import type { Env } from './sources.ts';

const SILENCE_MS = 5000;

export const FLAGS: readonly FlagSpec[] = [SESSION_FLAG];

export async function metricsCommand(argv: readonly string[], env: Env, io: Io): Promise<number> {
  const { flags } = parseFlags(argv, FLAGS);
  const { directory } = await oneAgent(flags, env);
  for await (const answer of ask(directory, { op: 'metrics' }, SILENCE_MS)) {
    if ('ok' in answer && answer.ok && answer.metrics !== undefined) io.stdout.write(answer.metrics);
  }
  return EXIT_DONE;
}
