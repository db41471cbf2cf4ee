/** `otela-gateway rollout …`: restarts agents with another version, a cohort at a time, while the other nodes serve. */
import { setTimeout as delay } from 'node:timers/promises';
import * as z from 'zod';
import manifest from '../../package.json' with { type: 'json' };
import { type Command, EXIT_DONE, type Flags, parseLine, UsageError } from '../../shared/command-line/index.ts';
import { isOlder, isVersion } from '../../shared/release/release-manifest.ts';
import { printable } from '../../shared/terminal/printable.ts';
import { durationMs } from '../../shared/text/duration.ts';
import { type ApiTarget, askGateway, ClientError, CONNECTION_FLAGS, outlasting, targetAt } from './api-client.ts';
import { NODE_FIELDS, readNodes } from './read-nodes.ts';
import { cohortOf, isBack, type RolloutNode, type Upgraded, upgradedOf } from './rollout-cohort.ts';

const POLL_MS = 1_000;

const nodeSchema = z.looseObject({
  ...NODE_FIELDS,
  agent_version: z.string().default('unknown'),
  models: z.array(z.object({ id: z.string(), state: z.string() })),
});
/** `minimum_agent_version` is absent in the answer of a gateway of an older version. */
const settingsSchema = z.object({ minimum_agent_version: z.string().nullable().default(null) });
const restartedSchema = z.object({ from: z.string(), running: z.number() });

const OPTIONS = {
  to: {
    default: manifest.version,
    value: 'VERSION',
    help: 'version that the agents should have; default: the version of this program',
  },
  cohort: { default: '25%', value: 'N|P%', help: 'start: nodes to restart at a time, at least one' },
  cluster: { value: 'C', help: 'only nodes of this cluster' },
  within: {
    default: '20m',
    value: 'TIME',
    help: 'start: stop the rollout if a cohort does not serve again within this time',
  },
  alone: { help: 'start: also restart the only node of a model; requests for the model wait' },
  ...CONNECTION_FLAGS,
} as const satisfies Flags;

export const ROLLOUT_COMMAND: Command = {
  summary: 'update agents to another version, some nodes at a time',
  examples: `status | start [--to VERSION] [--cohort N|P%] [--cluster C]

  otela-gateway rollout status --to 0.2.0                      number of nodes for each version, and outdated nodes
  otela-gateway rollout start --to 0.2.0 --cohort 10%          drains and restarts a tenth of the nodes, waits until they serve, continues
  otela-gateway rollout start --to 0.1.0                       back to the old version

An agent restarts from the path that it was started from: install the new version there first. A rollout stops at the first cohort that does
not serve again; run it again to continue. To refuse older agents: otela-gateway settings set minimum_agent_version 0.2.0`,
  verbs: ['status', 'start'],
  flags: OPTIONS,
  run: rolloutCommand,
};

interface Rollout {
  target: ApiTarget;
  settings: ApiTarget;
  to: string;
  cohort: string;
  cluster: string | undefined;
  withinMs: number;
  alone: boolean;
}

async function rolloutCommand(args: readonly string[]): Promise<number> {
  const { values, words } = parseLine(args, OPTIONS, { words: 1 });
  const withinMs = durationMs(values.within);
  if (withinMs === undefined) throw new UsageError(`--within ${values.within} is not a duration such as 90s or 20m`);
  if (!isVersion(values.to)) throw new UsageError(`--to ${values.to} is not a version such as 0.2.0`);
  if (!/^[1-9]\d{0,4}%?$/.test(values.cohort))
    throw new UsageError(`--cohort ${values.cohort} is not a number such as 5 or a share such as 25%`);
  const { to, cohort, cluster, alone } = values;
  const targets = { target: targetAt('/admin/nodes', values), settings: targetAt('/admin/settings', values) };
  const rollout = { ...targets, to, cohort, cluster, withinMs, alone };
  if (words[0] === 'status') return status(rollout);
  if (words[0] === 'start') return start(rollout);
  throw new UsageError('usage: otela-gateway rollout status | start');
}

async function status(rollout: Rollout): Promise<number> {
  const nodes = await listLiveNodes(rollout);
  const { to, target } = rollout;
  const { minimum_agent_version: minimum } = settingsSchema.parse(await askGateway(rollout.settings, 'GET', ''));
  const tooOld = (version: string) => minimum !== null && isOlder(version, minimum);
  const versions = Map.groupBy(nodes, ({ version }) => version);
  if (target.json) {
    for (const node of nodes)
      console.log(JSON.stringify({ ...node, behind: node.version !== to, below_minimum: tooOld(node.version) }));
    return EXIT_DONE;
  }
  if (nodes.length === 0) console.log('there are no nodes');
  for (const [version, of] of [...versions].sort(([a], [b]) => a.localeCompare(b))) {
    const behind = version === to ? '' : '  not yet';
    const old = tooOld(version) ? `  below ${minimum}: will not be admitted again` : '';
    console.log(printable(`${version}  ${of.length} nodes${behind}${old}`));
  }
  for (const { session, provider, cluster, version } of nodes.filter((node) => node.version !== to))
    console.log(printable(`  ${session}  ${provider}  ${cluster}  ${version}`));
  return EXIT_DONE;
}

async function start(rollout: Rollout): Promise<number> {
  const { target, to } = rollout;
  const say = (line: string, what: object) => console.log(target.json ? JSON.stringify(what) : printable(line));
  for (let round = 1; ; round++) {
    const nodes = await listLiveNodes(rollout);
    const { chosen, only, behind } = cohortOf(nodes, rollout);
    if (chosen.length === 0) {
      if (only.length === 0) {
        say(`all ${nodes.length} nodes run ${to}`, { done: true, nodes: nodes.length });
        return EXIT_DONE;
      }
      throw new ClientError(
        `${only.length} nodes are left, and each is the only node of a model (${only[0]?.session} …): while it restarts, requests for the model wait. --alone restarts these nodes too`,
      );
    }
    say(`cohort ${round}: ${chosen.length} of ${behind} nodes that do not run ${to} yet`, {
      cohort: round,
      of: behind,
    });
    const before = upgradedOf(nodes, to);
    for (const { session } of chosen) {
      const { from, running } = restartedSchema.parse(
        await askGateway(target, 'POST', `/${encodeURIComponent(session)}/restart`, { version: to }),
      );
      say(`  ${session}  ${from} to ${to}, ${running} running requests`, { session, from, to, running });
    }
    await back(rollout, chosen, before);
  }
}

/** Waits until as many nodes as were restarted run the version and serve. @throws ClientError if this takes too long */
async function back(rollout: Rollout, chosen: readonly RolloutNode[], before: Upgraded): Promise<void> {
  const until = Date.now() + rollout.withinMs;
  for (;;) {
    const nodes = await outlasting(() => listLiveNodes(rollout), POLL_MS);
    const left = new Set(nodes.map(({ session }) => session));
    const still = chosen.filter(({ session }) => left.has(session));
    const there = upgradedOf(nodes, rollout.to);
    if (still.length === 0 && isBack(there, before, chosen)) return;
    if (Date.now() > until)
      throw new ClientError(
        `stopped after ${rollout.withinMs / 1000} s: of ${chosen.length} restarted nodes, ${Math.max(0, there.here - before.here)} are back and ${Math.max(0, there.serving - before.serving)} of them serve version ${rollout.to}; ${still.length} have not left yet. Nodes after this cohort were not restarted`,
      );
    await delay(POLL_MS);
  }
}

/** Returns the nodes that have not left. */
async function listLiveNodes({ target, cluster }: Rollout): Promise<RolloutNode[]> {
  const nodes: RolloutNode[] = [];
  const query = new URLSearchParams({ limit: '1000' });
  for await (const node of readNodes(target, query, nodeSchema)) {
    if (node.state === 'LEFT' || (cluster !== undefined && node.cluster !== cluster)) continue;
    const { session, provider, agent_version: version, state, suspected } = node;
    const models = node.models.filter((model) => model.state === 'ready').map(({ id }) => id);
    const ready = state === 'SERVING' && !suspected && models.length > 0;
    nodes.push({ session, provider, cluster: node.cluster, version, state, ready, models });
  }
  return nodes;
}
