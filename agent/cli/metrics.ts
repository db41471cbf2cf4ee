/** `otela-agent metrics`: one agent's metrics, for Prometheus and for text files of its node exporter. */

import { type Command, EXIT_DONE, JSON_FLAG, parseLine } from '../../shared/command-line/index.ts';
import { ask } from '../host/control-client.ts';
import type { CommandContext } from './command-context.ts';
import { SESSION_FLAG, SESSION_HINT, selectOneAgent } from './select-agents.ts';

const SILENCE_MS = 5000;

const FLAGS = { ...SESSION_FLAG, ...JSON_FLAG };

export const METRICS_COMMAND: Command<CommandContext> = {
  summary: "the agent's figures, for Prometheus",
  examples: `[--session PREFIX] [--json]

The figures of the agent, its engine and its tunnels in Prometheus' text format. For node_exporter's textfile collector:
  otela-agent metrics > /var/lib/node_exporter/otela.prom
With --json the same text, as {"session", "metrics"}. Over the network, in clear: start --metrics HOST:PORT.`,
  flags: FLAGS,
  run: metricsCommand,
};

async function metricsCommand(argv: readonly string[], { env, io }: CommandContext): Promise<number> {
  const { values } = parseLine(argv, FLAGS, SESSION_HINT);
  const { session, directory } = await selectOneAgent(values.session, env);
  for await (const answer of ask(directory, { op: 'metrics' }, SILENCE_MS)) {
    if (!('ok' in answer && answer.ok && answer.metrics !== undefined)) continue;
    if (values.json) io.out(JSON.stringify({ session, metrics: answer.metrics }));
    else io.stdout.write(answer.metrics);
  }
  return EXIT_DONE;
}
