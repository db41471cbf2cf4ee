/** `otela-agent metrics`: one agent's figures, as Prometheus and its node exporter's text files take them. */

import { EXIT_DONE } from '../config/exit.ts';
import { type FlagSpec, onlyFlags } from '../config/flags.ts';
import type { Env } from '../config/sources.ts';
import { ask } from '../host/control-client.ts';
import { JSON_FLAG, oneAgent, SESSION_FLAG } from './choose.ts';
import type { Io } from './io.ts';

const SILENCE_MS = 5000;

export const FLAGS: readonly FlagSpec[] = [SESSION_FLAG, JSON_FLAG];

export async function metricsCommand(argv: readonly string[], env: Env, io: Io): Promise<number> {
  const flags = onlyFlags(argv, FLAGS);
  const { session, directory } = await oneAgent(flags, env);
  for await (const answer of ask(directory, { op: 'metrics' }, SILENCE_MS)) {
    if (!('ok' in answer && answer.ok && answer.metrics !== undefined)) continue;
    if (flags.has('json')) io.out(JSON.stringify({ session, metrics: answer.metrics }));
    else io.stdout.write(answer.metrics);
  }
  return EXIT_DONE;
}
