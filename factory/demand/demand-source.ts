/** Interfaces of sources of demand: the gateway, plans and forecasts. */
import type { FactoryReport, ModelDemand, ServingNode } from '../../shared/factory/factory-exchange.ts';

/** A number of replicas that a plan wants with one kind of GPU and one parallelism. */
export interface PlannedShape {
  /** Kind of GPU; absent: any. */
  gpu?: string | undefined;
  tp: number;
  pp: number;
  replicas: number;
}

export interface PlannedShapes {
  shapes: readonly PlannedShape[];
  /** Maximum replicas that may change at a time. */
  wave: number;
}

export interface DemandReading {
  demand: ReadonlyMap<string, ModelDemand>;
  /** By model: the shapes of its wanted replicas on idle agents. Absent: the source wants no particular shapes. */
  planned?: ReadonlyMap<string, PlannedShapes>;
  /** Nodes at the gateway; undefined: no gateway answered recently. */
  nodes: readonly ServingNode[] | undefined;
}

export interface DemandSource {
  /** Returns the latest demand without waiting for an answer. */
  latest(now: number): DemandReading;
}

/** A source that also receives the factory's reports, and wakes the factory when demand changed. */
export interface GatewaySource extends DemandSource {
  open(changed: () => void): void;
  report(report: FactoryReport): void;
  /** Returns why the gateway did not answer recently; undefined if it did. */
  fault(): string | undefined;
  close(): Promise<void>;
}

/**
 * Adds the wanted replicas of plans and forecasts to the gateway's demand. The shapes are those of the first source
 * that has shapes.
 */
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
