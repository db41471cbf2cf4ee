/** Sources of demand. A gateway is one; plans and forecasts are others. */
import type { FactoryReport, ModelDemand, ServingNode } from '../../shared/factory/factory-exchange.ts';

/** Replicas of one kind of GPU and one parallelism. */
export interface PlannedShape {
  /** absent: any GPU. */
  gpu?: string | undefined;
  tp: number;
  pp: number;
  replicas: number;
}

export interface PlannedShapes {
  shapes: readonly PlannedShape[];
  /** Replicas that change at a time. */
  wave: number;
}

export interface DemandReading {
  demand: ReadonlyMap<string, ModelDemand>;
  /** By model: shapes of its wanted replicas on idle agents; absent: the source names none. */
  planned?: ReadonlyMap<string, PlannedShapes>;
  /** undefined: no gateway answered recently. */
  nodes: readonly ServingNode[] | undefined;
}

export interface DemandSource {
  /** Returns the current knowledge without waiting. */
  latest(now: number): DemandReading;
}

/** A source that receives the factory's reports, and wakes it when something changed. */
export interface GatewaySource extends DemandSource {
  open(changed: () => void): void;
  report(report: FactoryReport): void;
  /** Why the gateway did not answer recently; undefined if it did. */
  fault(): string | undefined;
  close(): Promise<void>;
}

/** Merges plans and forecasts of all other sources into the gateway's demand, taking the maximum. */
export function mergeDemand(gateway: DemandReading, others: readonly DemandReading[]): DemandReading {
  const demand = new Map(gateway.demand);
  for (const { demand: more } of others)
    for (const [model, { wanted = [] }] of more) {
      const known = demand.get(model) ?? noDemand(model);
      demand.set(model, { ...known, wanted: [...(known.wanted ?? []), ...wanted].slice(0, 8) });
    }
  const planned = others.find((one) => one.planned !== undefined)?.planned;
  return { demand, nodes: gateway.nodes, ...(planned === undefined ? {} : { planned }) };
}

export function noDemand(model: string): ModelDemand {
  return { model, waiting: 0, oldest_wait_ms: 0, queued: 0, in_flight: 0, busy: 0, ready_replicas: 0 };
}
