/** `otela-agent status`: the state of this user's agents on this machine. */

import { type Command, EXIT_DONE, parseLine } from '../../shared/command-line/index.ts';
import { formatDuration } from '../config/duration.ts';
import { askNetwork } from '../host/control-client.ts';
import type { AgentStatus, NetworkRow } from '../host/control-protocol.ts';
import { networkTable } from '../life/network-table.ts';
import type { CommandContext } from './command-context.ts';
import { progressBar } from './progress-bar.ts';
import { LOCAL_AGENTS_USAGE, NO_AGENT, SESSION_HINT, selectAgents } from './select-agents.ts';

export const STATUS_COMMAND: Command<CommandContext> = {
  summary: 'show the state of your agents on this machine',
  ...LOCAL_AGENTS_USAGE,
  run: statusCommand,
};

async function statusCommand(argv: readonly string[], { env, io }: CommandContext): Promise<number> {
  const { values } = parseLine(argv, LOCAL_AGENTS_USAGE.flags, SESSION_HINT);
  const agents = await selectAgents(values.session, env);
  const known = await Promise.all(
    agents.map(async (agent) => ({ status: agent.status, network: await askNetwork(agent) })),
  );
  if (values.json)
    io.out(
      JSON.stringify(
        known.map(({ status, network }) => ({ ...status, network })),
        null,
        2,
      ),
    );
  else if (known.length === 0) io.out(NO_AGENT);
  else io.out([...known.map(({ status }) => describe(status, Date.now())), ...table(known)].map(text).join('\n\n'));
  return EXIT_DONE;
}

const text = (lines: readonly string[]) => lines.join('\n');

/**
 * Shows the longest of the agents' lists. All agents of a machine see the same network once they are connected, so one
 * list is enough.
 */
function table(known: readonly { network: NetworkRow[] }[]): string[][] {
  const rows = known.map(({ network }) => network).reduce((a, b) => (b.length > a.length ? b : a), []);
  return rows.length === 0 ? [] : [networkTable(rows)];
}

function describe(status: AgentStatus, now: number): string[] {
  const lines = [
    `${status.session}  ${status.admitted ? status.state : 'not admitted yet'}  up ${formatDuration(now - Date.parse(status.started_at))}  pid ${status.pid}`,
  ];
  for (const { url, connected, in_flight, refused } of status.gateways) {
    lines.push(
      `  gateway   ${url}  ${refused ? `refused: ${refused}` : connected ? 'connected' : 'not connected'}, ${in_flight} running`,
    );
  }
  if (status.provider) lines.push(`  provider  ${status.provider}, cluster ${status.cluster}`);
  if (status.mesh) {
    const { addresses, channels, relayed, relaying, reserved } = status.mesh;
    const through = relayed > 0 ? ` (${relayed} relayed)` : '';
    const others = reserved > 0 ? `, relay for ${reserved} agents, ${relaying} in use` : '';
    lines.push(`  mesh      ${addresses.join(', ') || 'not listening'}, ${channels} channels${through}${others}`);
  }
  if (status.ingress) lines.push(`  ingress   ${status.ingress.url}, key in ${status.ingress.key_file}`);
  if (status.engine) {
    const { url, answering, trouble, pid, waiting_s, last_line } = status.engine;
    const since = waiting_s === undefined ? '' : ` for ${formatDuration(waiting_s * 1000)}`;
    const state = answering ? 'answering' : `not answering${since}${trouble ? ` (${trouble})` : ''}`;
    lines.push(`  engine    ${url}  ${state}${pid === undefined ? '' : `, pid ${pid}`}`);
    if (last_line !== undefined) lines.push(`            ${last_line}`);
  }
  if (status.weights) {
    const { directory, uploads, pulls } = status.weights;
    lines.push(`  weights   ${directory}, sent to ${uploads} nodes now`);
    for (const pull of pulls) if (pull.state !== 'done') lines.push(`            ${progressBar(pull)}`);
  }
  for (const { id, state } of status.models) lines.push(`  model     ${id}  ${state}`);
  if (status.hardware) {
    const { gpus, cpus, memory_mib } = status.hardware;
    const counts = new Map<string, number>();
    for (const gpu of gpus) counts.set(gpu.class, (counts.get(gpu.class) ?? 0) + gpu.count);
    const named = [...counts].map(([name, count]) => `${count} ${name}`).join(', ') || 'no GPU';
    lines.push(`  hardware  ${named}, ${cpus} CPUs, ${Math.round(memory_mib / 1024)} GiB`);
  }
  if (status.job) {
    const { id, partition, ends_at } = status.job;
    const ends = ends_at === undefined ? '' : `, ends ${ends_at} (in ${formatDuration(Date.parse(ends_at) - now)})`;
    lines.push(`  job       ${id}${partition ? ` on ${partition}` : ''}${ends}`);
  }
  return lines;
}
