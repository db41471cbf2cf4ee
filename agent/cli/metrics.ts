/** `otela-agent metrics`: one agent's metrics, for Prometheus and for text files of its node exporter. */

import { type Command, EXIT_DONE, JSON_FLAG, parseLine } from '../../shared/command-line/index.ts';
import { ask } from '../host/control-client.ts';
import type { CommandContext } from './command-context.ts';
import { SESSION_FLAG, SESSION_HINT, selectOneAgent } from './select-agents.ts';

const SILENCE_MS = 5000;

const FLAGS = { ...SESSION_FLAG, ...JSON_FLAG };

export const METRICS_COMMAND: Command<CommandContext> = {
  summary: 'print the metrics of an agent for Prometheus',
  examples: `[--session PREFIX] [--json]

Prints the metrics of the agent, its engine and its tunnels in the text format of Prometheus. For the textfile collector of node_exporter:
  otela-agent metrics > /var/lib/node_exporter/otela.prom
With --json: {"session", "metrics"}, with the same text. To serve them over the network, unencrypted: start --metrics HOST:PORT.`,
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
