/** Chooses which nodes of a rollout are restarted next. Pure. */

export interface RolloutNode {
  session: string;
  provider: string;
  cluster: string;
  version: string;
  state: string;
  /** True if the node gets requests. */
  ready: boolean;
  /** Ids of the models that the node serves now. */
  models: readonly string[];
}

interface Wanted {
  to: string;
  /**
   * How many nodes are restarted at a time: a number such as `5`, or a share such as `25%` of all nodes; at least one.
   */
  cohort: string;
  /** True: also restarts nodes that are the only node of one of their models. */
  alone: boolean;
}

interface Cohort {
  chosen: RolloutNode[];
  /** Nodes that are omitted because each is the only node of one of its models. */
  only: RolloutNode[];
  /** Number of nodes that do not run the new version yet. */
  behind: number;
}

/** Nodes that run the new version, and how many of them serve. */
export interface Upgraded {
  here: number;
  serving: number;
}

export function upgradedOf(nodes: readonly RolloutNode[], to: string): Upgraded {
  const here = nodes.filter(({ version, state }) => version === to && state !== 'DOWN');
  return { here: here.length, serving: here.filter(({ ready }) => ready).length };
}

/**
 * True if a restarted cohort is back: the number of nodes with the new version has grown by the cohort's size, and the
 * number of these that serve has grown by the cohort's nodes that served before.
 */
export function isBack(now: Upgraded, before: Upgraded, chosen: readonly RolloutNode[]): boolean {
  const served = chosen.filter(({ ready }) => ready).length;
  return now.here >= before.here + chosen.length && now.serving >= before.serving + served;
}

/**
 * Chooses the next nodes. Nodes that serve nothing come first, because restarting them affects no requests. Each model
 * keeps a serving node, unless `alone` is true.
 */
export function cohortOf(nodes: readonly RolloutNode[], { to, cohort, alone }: Wanted): Cohort {
  const behind = nodes.filter(({ version, state }) => version !== to && state !== 'DOWN');
  const size = cohort.endsWith('%')
    ? Math.max(1, Math.floor((nodes.length * Math.min(100, Number(cohort.slice(0, -1)))) / 100))
    : Number(cohort);
  const serving = new Map<string, number>();
  for (const { ready, models } of nodes)
    if (ready) for (const model of models) serving.set(model, (serving.get(model) ?? 0) + 1);
  const chosen: RolloutNode[] = [];
  const only: RolloutNode[] = [];
  for (const node of behind.toSorted((a, b) => Number(a.ready) - Number(b.ready))) {
    if (chosen.length >= size) break;
    const isOnly = node.ready && node.models.some((model) => (serving.get(model) ?? 0) <= 1);
    if (isOnly && !alone) {
      only.push(node);
      continue;
    }
    chosen.push(node);
    if (node.ready) for (const model of node.models) serving.set(model, (serving.get(model) ?? 0) - 1);
  }
  return { chosen, only, behind: behind.length };
}
