/** An edge with room left; `back` is its reverse. */
interface Edge {
  to: number;
  room: number;
  back: number;
}

/** A flow of less than this is none: capacities are requests/s. */
const EPSILON = 1e-9;

/**
 * Maximum flow by preflow-push with the highest label first (Goldberg and Tarjan 1988), O(V²√E). Edges are [from, to, capacity]; returns the
 * flow on each. It gives the assignment only where rates are separable, n_kj = a_k·b_j: then a unit of work is worth the same everywhere.
 * The network of OServe §4.2 has gains on its edges in general, which is a generalised flow: use `balance` and `mostServed` there.
 */
function preflowPush(
  vertices: number,
  source: number,
  sink: number,
  edges: readonly (readonly [from: number, to: number, capacity: number])[],
): number[] {
  const graph: Edge[][] = Array.from({ length: vertices }, () => []);
  const at = edges.map(([from, to, capacity]) => {
    const [own, other] = [graph[from] ?? [], graph[to] ?? []];
    own.push({ to, room: capacity, back: other.length });
    other.push({ to: from, room: 0, back: own.length - 1 });
    return own.length - 1;
  });
  const excess = new Float64Array(vertices);
  const height = new Int32Array(vertices);
  height[source] = vertices;
  for (const edge of graph[source] ?? []) push(graph, excess, source, edge, edge.room);
  for (;;) {
    let active = -1;
    for (let v = 0; v < vertices; v++) {
      const waits = v !== source && v !== sink && (excess[v] ?? 0) > EPSILON;
      if (waits && (active < 0 || (height[v] ?? 0) > (height[active] ?? 0))) active = v;
    }
    if (active < 0) break;
    discharge(graph, excess, height, active);
  }
  return edges.map(([from, , capacity], i) => capacity - (graph[from]?.[at[i] ?? 0]?.room ?? capacity));
}

function push(graph: Edge[][], excess: Float64Array, from: number, edge: Edge, amount: number): void {
  if (amount <= 0) return;
  edge.room -= amount;
  const back = graph[edge.to]?.[edge.back];
  if (back !== undefined) back.room += amount;
  excess[from] = (excess[from] ?? 0) - amount;
  excess[edge.to] = (excess[edge.to] ?? 0) + amount;
}

/** Pushes downhill; where no edge goes downhill the vertex is lifted above its lowest neighbour. */
function discharge(graph: Edge[][], excess: Float64Array, height: Int32Array, v: number): void {
  while ((excess[v] ?? 0) > EPSILON) {
    let lowest = Number.POSITIVE_INFINITY;
    for (const edge of graph[v] ?? []) {
      if (edge.room <= EPSILON) continue;
      if ((height[v] ?? 0) === (height[edge.to] ?? 0) + 1) {
        push(graph, excess, v, edge, Math.min(excess[v] ?? 0, edge.room));
        if ((excess[v] ?? 0) <= EPSILON) return;
      }
      if (edge.room > EPSILON) lowest = Math.min(lowest, height[edge.to] ?? 0);
    }
    if (!Number.isFinite(lowest)) {
      excess[v] = 0;
      return;
    }
    height[v] = Math.max(height[v] ?? 0, lowest) + (lowest >= (height[v] ?? 0) ? 1 : 0);
  }
}

/**
 * Most requests served where n_kj = a_k·b_j, by flows of work: kind j brings demand_j / b_j, group k takes a_k. Returns `flow[k][j]` in requests/s.
 * It maximises work, which is requests only where all b_j are equal; the property tests compare both with the linear program.
 */
export function separableFlow(
  speed: readonly number[],
  ease: readonly number[],
  demand: readonly number[],
): number[][] {
  const [groups, kinds] = [speed.length, ease.length];
  const [source, sink] = [0, 1 + kinds + groups];
  const edges: [number, number, number][] = [];
  for (let j = 0; j < kinds; j++) edges.push([source, 1 + j, (demand[j] ?? 0) / (ease[j] ?? 1)]);
  for (let j = 0; j < kinds; j++) {
    for (let k = 0; k < groups; k++) edges.push([1 + j, 1 + kinds + k, (demand[j] ?? 0) / (ease[j] ?? 1)]);
  }
  for (let k = 0; k < groups; k++) edges.push([1 + kinds + k, sink, speed[k] ?? 0]);
  const flow = preflowPush(sink + 1, source, sink, edges);
  return speed.map((_, k) => ease.map((each, j) => (flow[kinds + j * groups + k] ?? 0) * each));
}
