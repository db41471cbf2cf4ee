/** Where demand comes from. A gateway is one source; a plan or a forecast would be others. */
import type { FactoryReport, ModelDemand, ServingNode } from '../../shared/factory/exchange.ts';

export interface DemandReading {
  demand: ReadonlyMap<string, ModelDemand>;
  /** Undefined: no gateway could be asked lately. */
  nodes: readonly ServingNode[] | undefined;
}

export interface DemandSource {
  /** What is known now, without waiting. */
  latest(now: number): DemandReading;
}

/** A source that is told what the factory does, and wakes it when something changed. */
export interface GatewaySource extends DemandSource {
  open(changed: () => void): void;
  report(report: FactoryReport): void;
  /** Why the gateway was not heard lately; undefined where it was. */
  fault(): string | undefined;
  close(): Promise<void>;
}

/** Plans and forecasts of all sources beside the gateway's own demand: the factory takes the most of them. */
export function mergeDemand(gateway: DemandReading, others: readonly DemandReading[]): DemandReading {
  const demand = new Map(gateway.demand);
  for (const { demand: more } of others)
    for (const [model, { wanted = [] }] of more) {
      const known = demand.get(model) ?? noDemand(model);
      demand.set(model, { ...known, wanted: [...(known.wanted ?? []), ...wanted].slice(0, 8) });
    }
  return { demand, nodes: gateway.nodes };
}

export function noDemand(model: string): ModelDemand {
  return { model, waiting: 0, oldest_wait_ms: 0, queued: 0, in_flight: 0, busy: 0, ready_replicas: 0 };
}
