/**
 * An example of a custom planner: `otela-plan plan --planner examples/plan/max-flow.ts …`.
 *
 * After Helix (ASPLOS'25): GPUs and models form a flow network, source -> model -> replicas -> sink, whose edges carry
 * requests/s. Its maximum flow is what the placement can serve, and interleaved weighted round-robin over the flow's
 * edges is the routing. Helix places layers of one model over GPUs that could not hold it; engines behind this network
 * hold whole models, so the flow ends at replicas.
 */

import type { PlannedReplicas, Planner } from '../../scheduler/planner/types.ts';
import { Search } from '../../scheduler/solver/greedy-search.ts';
import { OptionTable } from '../../scheduler/solver/option-table.ts';
import type { Option } from '../../scheduler/solver/planning-problem.ts';
import { statelessPolicy } from '../../shared/routing/policies/stateless.ts';
import { type Edge, maxFlow } from './edmonds-karp.ts';

const planByFlow: Planner = async (inventory, workload, current, { options: settings }) => {
  const throughput = { ...settings, objective: 'throughput' as const };
  const table = new OptionTable(workload, inventory, throughput);
  const floor = table.options.map((option) => {
    const [model, pool] = [workload[option.demand]?.model.id, inventory[option.pool]?.id];
    const same = current.filter((one) => one.model === model && one.pool === pool && one.tp === option.tp);
    return settings.reclaim ? 0 : same.reduce((sum, { replicas }) => sum + replicas, 0);
  });
  const usable = table.options.map(({ capacity }) => ({ rate: capacity, curve: [] }));
  const goal = { kind: 'share', most: Number.POSITIVE_INFINITY } as const;
  const search = new Search(
    { options: table.options, demands: workload, pools: inventory, floor, settings: throughput, usable, goal },
    floor,
  );
  search.fill(performance.now() + settings.timeLimitS * 1e3);
  for (const [o, option] of table.options.entries())
    if ((search.counts[o] ?? 0) > 0) table.simulateOption(option, false);

  const [source, sink] = ['source', 'sink'];
  const edges: Edge[] = workload.map((demand, m) => ({ from: source, to: `model ${m}`, capacity: demand.rate }));
  const used = table.options
    .map((option, o) => ({ option, o, replicas: search.counts[o] ?? 0 }))
    .filter(({ replicas }) => replicas > 0);
  for (const { option, o, replicas } of used) {
    edges.push({ from: `model ${option.demand}`, to: `replicas ${o}`, capacity: Number.POSITIVE_INFINITY });
    edges.push({ from: `replicas ${o}`, to: sink, capacity: replicas * option.capacity });
  }
  const { flow, total } = maxFlow(edges, source, sink);
  const through = (option: Option, o: number) => flow.get(`model ${option.demand}>replicas ${o}`) ?? 0;

  const placements = used.map(({ option, o, replicas }): PlannedReplicas => {
    const all = used
      .filter((other) => other.option.demand === option.demand)
      .reduce((sum, other) => sum + through(other.option, other.o), 0);
    const pool = inventory[option.pool];
    return {
      model: workload[option.demand]?.model.id ?? '',
      pool: pool?.id ?? '',
      gpu: pool?.gpu.id ?? '',
      tp: option.tp,
      replicas,
      share: all > 0 ? through(option, o) / all : 0,
      rate: through(option, o),
      capacity: replicas * option.capacity,
      source: 'planner',
    };
  });
  const asked = workload.reduce((sum, { rate }) => sum + rate, 0);
  return {
    objective: 'max-flow',
    placements,
    models: workload.map((demand, m) => ({
      model: demand.model.id,
      rate: demand.rate,
      unserved: demand.rate - (flow.get(`source>model ${m}`) ?? 0),
      latencyS: undefined,
      why: ['requests/s along its edges of the maximum flow'],
    })),
    pools: [],
    meanLatencyS: undefined,
    servedShare: Math.min(
      ...workload.map((demand, m) => (demand.rate > 0 ? (flow.get(`source>model ${m}`) ?? 0) / demand.rate : 1)),
    ),
    usdPerHour: placements.reduce(
      (sum, one) => sum + one.replicas * one.tp * (inventory.find(({ id }) => id === one.pool)?.gpu.usdPerHour ?? 0),
      0,
    ),
    report: undefined,
    infeasible:
      total < asked * 0.999 ? `the maximum flow is ${total.toFixed(2)} of ${asked.toFixed(2)} requests/s` : undefined,
    pick: interleaved,
  };
};

export default planByFlow;

/**
 * Helix's interleaved weighted round-robin: the replica with the earliest next turn, 1/weight after its last turn, is
 * chosen.
 */
function interleaved(): NonNullable<ReturnType<NonNullable<Awaited<ReturnType<Planner>>['pick']>>> {
  return (replicas) => {
    const turns = new Map(
      replicas.map(({ session, weight }) => [
        session,
        { next: 0.5 / Math.max(weight, 1e-9), gap: 1 / Math.max(weight, 1e-9) },
      ]),
    );
    return {
      readsLoad: false,
      policy: statelessPolicy('interleaved weighted round-robin', (candidates) => {
        let chosen = candidates[0];
        for (const candidate of candidates) {
          if ((turns.get(candidate.session)?.next ?? 0) < (turns.get(chosen?.session ?? '')?.next ?? 0))
            chosen = candidate;
        }
        const turn = chosen === undefined ? undefined : turns.get(chosen.session);
        if (turn) turn.next += turn.gap;
        return chosen;
      }),
    };
  };
}
