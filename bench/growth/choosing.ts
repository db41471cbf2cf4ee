/** What the choice of a node costs with few and with many nodes and models, in this process. */
import type { RegistryEntry } from '../../shared/lattice/node-record.ts';
import { NO_REQUIREMENTS } from '../../shared/routing/candidates.ts';
import { chooseNode, type RoutingQuery, requestEnded, requestStarted } from '../../shared/routing/choose-node.ts';
import { NodeIndex } from '../../shared/routing/node-index.ts';
import { leastLoadPolicy } from '../../shared/routing/policies/least-load.ts';
import { prefixAffinity } from '../../shared/routing/policies/prefix-affinity.ts';
import type { Policy } from '../../shared/routing/routing-policy.ts';
import { decideTrust } from '../../shared/routing/trusted-providers.ts';
import { seeded } from '../../test/support/random.ts';
import { median } from '../stats.ts';

/** Requests between two changes of a node: 4,000 requests and two changes each second. */
const REQUESTS_PER_CHANGE = 2_000;
/** Requests of a round. */
const REQUESTS = 20_000;
const ROUNDS = 9;
/** Requests that are open at the same time. */
const OPEN = 64;

const trust = decideTrust({ own: 'local', lists: [], defaults: 'admitted', deleted: new Set(), policies: [] });

/** A node that serves a model. */
export function benchNode(number: number, model: string): RegistryEntry {
  return {
    session: `s${String(number).padStart(25, '0')}`,
    issuer: 'local',
    state: 'SERVING',
    version: 1,
    connected: true,
    suspected: false,
    provider: `provider-${number % 10}`,
    cluster: 'alps',
    tier: 'volatile',
    labels: {},
    models: [{ id: model, state: 'ready' }],
    hardware: { gpus: [], cpus: 1, memory_mib: 1 },
    agent_version: 'bench',
    joined_at: '2026-01-01T00:00:00.000Z',
    updated_at: '2026-01-01T00:00:00.000Z',
  };
}

export interface ChoosingPlan {
  nodes: number;
  models: number;
  /** True: each request belongs to one of 1,000 conversations and goes to the node that has its prefix. */
  conversations: boolean;
}

/** Microseconds of processor time to choose a node and to count the request at it: the median of several rounds. */
export function chooseMicros({ nodes, models, conversations }: ChoosingPlan): number {
  const random = seeded(1);
  const index = new NodeIndex();
  const entries = Array.from({ length: nodes }, (_, n) => benchNode(n, `org/model-${n % models}`));
  for (const entry of entries) index.put(entry);
  for (const { session } of entries)
    index.live.setLoad(session, { at: 0, running: Math.floor(random() * 8), waiting: 0, kvUse: random() });
  const policy: Policy = conversations ? prefixAffinity() : leastLoadPolicy;
  const change = () => {
    const changed = entries[Math.floor(random() * nodes)];
    if (changed === undefined) return;
    index.put({ ...changed, suspected: true });
    index.put(changed);
  };
  const round = () => {
    const open: (() => void)[] = [];
    const before = process.cpuUsage();
    for (let request = 0; request < REQUESTS; request++) {
      if (request % REQUESTS_PER_CHANGE === 0) change();
      const model = `org/model-${request % models}`;
      const session = conversations ? `conversation ${Math.floor(random() * 1_000)}` : undefined;
      const query: RoutingQuery = {
        request: { model, priority: 'interactive', inputTokens: 100, session },
        fallbacks: [],
        trust,
        demand: NO_REQUIREMENTS,
        policyFor: () => policy,
        lostLatelyMs: 0,
        now: 0,
        random,
      };
      const choice = chooseNode(index, query, new Set());
      if (choice === undefined) throw new Error('no node');
      requestStarted(choice);
      open.push(() => requestEnded(choice, 'complete'));
      if (open.length > OPEN) open.shift()?.();
    }
    for (const end of open) end();
    const { user, system } = process.cpuUsage(before);
    return (user + system) / REQUESTS;
  };
  for (let n = 0; n < ROUNDS; n++) round();
  return median(Array.from({ length: ROUNDS }, round));
}
