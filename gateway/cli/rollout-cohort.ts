/** Which nodes of a rollout are restarted next. Pure. */

export interface RolloutNode {
  session: string;
  provider: string;
  cluster: string;
  version: string;
  state: string;
  /** Requests go to it. */
  ready: boolean;
  /** Ids of models that it serves now. */
  models: readonly string[];
}

interface Wanted {
  to: string;
  /** `5` or `25%` of all nodes, at least one. */
  cohort: string;
  /** Also nodes without which a model has none. */
  alone: boolean;
}

export interface Cohort {
  chosen: RolloutNode[];
  /** Left out, each the only node of one of its models. */
  only: RolloutNode[];
  /** All that are not of that version yet. */
  behind: number;
}

/** Nodes of a version, and those of them that serve. */
export interface Upgraded {
  here: number;
  serving: number;
}

export function upgradedOf(nodes: readonly RolloutNode[], to: string): Upgraded {
  const here = nodes.filter(({ version, state }) => version === to && state !== 'DOWN');
  return { here: here.length, serving: here.filter(({ ready }) => ready).length };
}

/** Whether a cohort is back: a node that served before serves again, one that waited for a deployment waits again. */
export function isBack(now: Upgraded, before: Upgraded, chosen: readonly RolloutNode[]): boolean {
  const served = chosen.filter(({ ready }) => ready).length;
  return now.here >= before.here + chosen.length && now.serving >= before.serving + served;
}

/** Nodes that serve nothing come first: they cost nothing. Of each model a node stays that serves. */
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
