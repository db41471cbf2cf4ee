export interface Edge {
  from: string;
  to: string;
  capacity: number;
}

/** Smaller flows are rounding errors. */
const EPSILON = 1e-9;

/** Edmonds and Karp (1972): shortest augmenting paths. `flow` is by `from>to`. For networks of a few hundred edges. */
export function maxFlow(
  edges: readonly Edge[],
  source: string,
  sink: string,
): { total: number; flow: Map<string, number> } {
  const residual = new Map<string, Map<string, number>>();
  const add = (from: string, to: string, capacity: number) => {
    const out = residual.get(from) ?? new Map<string, number>();
    residual.set(from, out.set(to, (out.get(to) ?? 0) + capacity));
  };
  for (const { from, to, capacity } of edges) {
    add(from, to, capacity);
    add(to, from, 0);
  }
  const flow = new Map<string, number>();
  let total = 0;
  for (let path = shortest(residual, source, sink); path !== undefined; path = shortest(residual, source, sink)) {
    const width = Math.min(...path.map(([from, to]) => residual.get(from)?.get(to) ?? 0));
    if (!Number.isFinite(width)) throw new Error('the network has no bound between source and sink');
    for (const [from, to] of path) {
      add(from, to, -width);
      add(to, from, width);
      const back = flow.get(`${to}>${from}`) ?? 0;
      flow.set(`${to}>${from}`, Math.max(0, back - width));
      flow.set(`${from}>${to}`, (flow.get(`${from}>${to}`) ?? 0) + Math.max(0, width - back));
    }
    total += width;
  }
  return { total, flow };
}

function shortest(
  residual: ReadonlyMap<string, ReadonlyMap<string, number>>,
  source: string,
  sink: string,
): [string, string][] | undefined {
  const before = new Map<string, string>([[source, source]]);
  const queue = [source];
  for (let at = queue.shift(); at !== undefined; at = queue.shift()) {
    for (const [to, capacity] of residual.get(at) ?? []) {
      if (capacity <= EPSILON || before.has(to)) continue;
      before.set(to, at);
      queue.push(to);
    }
  }
  if (!before.has(sink)) return undefined;
  const path: [string, string][] = [];
  for (let to = sink; to !== source; ) {
    const from = before.get(to) ?? source;
    path.unshift([from, to]);
    to = from;
  }
  return path;
}
