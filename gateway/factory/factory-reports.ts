import { type DayPoint, FACTORY_SILENT_AFTER_MS, type FactoryReport } from '../../shared/factory/factory-exchange.ts';
import type { ObjectContext, ObjectStorage } from '../platform/object-context.ts';
import type { StorageHealth } from '../platform/storage/storage-health.ts';

/**
 * Maximum autoscalers. Above this number, the token with the most autoscalers loses the autoscaler that has been silent
 * for longest.
 */
const FACTORIES_MAX = 32;
const REPORT = 'report/';
const DAY = 'day/';

/** Identifies an autoscaler: a token, and the autoscaler's name under it. */
export interface FactoryIdentity {
  tokenId: string;
  provider: string;
  factory: string;
}

/**
 * The last report of an autoscaler. Jobs and decisions are only in memory, because they are sent again within half a
 * minute.
 */
export interface KnownReport extends FactoryIdentity {
  /** When the report arrived; milliseconds since the epoch. */
  at: number;
  configRevision: string;
  models: FactoryReport['models'];
  clusters: FactoryReport['clusters'];
  jobs: FactoryReport['jobs'];
  decisions: FactoryReport['decisions'];
  day: readonly DayPoint[];
}

type StoredReport = Omit<KnownReport, 'jobs' | 'decisions' | 'day'>;

export function factoryKey({ tokenId, factory }: Pick<FactoryIdentity, 'tokenId' | 'factory'>): string {
  return `${tokenId}/${factory}`;
}

/** The last report of each autoscaler. The parts that answer requests for cold models are stored. */
export class FactoryReports {
  readonly #storage: ObjectStorage;
  readonly #health: StorageHealth;
  readonly #known = new Map<string, KnownReport>();

  constructor({ storage, health }: Pick<ObjectContext, 'storage' | 'health'>) {
    this.#storage = storage;
    this.#health = health;
    for (const [key, stored] of storage.kv.list<StoredReport>({ prefix: REPORT })) {
      const name = key.slice(REPORT.length);
      const day = storage.kv.get<DayPoint[]>(DAY + name) ?? [];
      this.#known.set(name, { ...stored, jobs: [], decisions: [], day });
    }
  }

  /** Stores a report. @returns the name of the autoscaler that was dropped because there are too many */
  put(identity: FactoryIdentity, report: FactoryReport, now: number): string | undefined {
    const name = factoryKey(identity);
    const { kv } = this.#storage;
    const stored: StoredReport = {
      ...identity,
      at: now,
      configRevision: report.config_revision,
      models: report.models,
      clusters: report.clusters,
    };
    // If the disk is full, the models stay known, but only in memory.
    if (this.#health.failure === undefined) {
      kv.put(REPORT + name, stored);
      if (report.day !== undefined) kv.put(DAY + name, report.day);
    }
    const day = report.day ?? this.#known.get(name)?.day ?? [];
    this.#known.delete(name);
    this.#known.set(name, { ...stored, jobs: report.jobs, decisions: report.decisions, day });
    return this.#known.size > FACTORIES_MAX ? this.#dropOfLargest() : undefined;
  }

  /**
   * Drops an autoscaler of the token that has the most autoscalers. So a token that reports under ever new names drops
   * only its own autoscalers.
   */
  #dropOfLargest(): string | undefined {
    const names = Map.groupBy(this.#known.keys(), (name) => this.#known.get(name)?.tokenId);
    let largest: string[] = [];
    for (const own of names.values()) if (own.length > largest.length) largest = own;
    const [oldest] = largest;
    if (oldest !== undefined) this.#drop(oldest);
    return oldest;
  }

  /** Drops all autoscalers of a token. */
  forget(tokenId: string): void {
    for (const [name, report] of this.#known) if (report.tokenId === tokenId) this.#drop(name);
  }

  #drop(name: string): void {
    this.#known.delete(name);
    if (this.#health.failure !== undefined) return;
    this.#storage.kv.delete(REPORT + name);
    this.#storage.kv.delete(DAY + name);
  }

  /** Returns all reports in the order of their arrival. */
  all(): KnownReport[] {
    return [...this.#known.values()];
  }

  /** Returns the reports of autoscalers that are not silent. */
  live(now: number): KnownReport[] {
    return this.all().filter((report) => !isFactorySilent(report, now));
  }
}

export function isFactorySilent({ at }: Pick<KnownReport, 'at'>, now: number): boolean {
  // If the clock was set back since the report, `now - at` may be far below 0. The age is then unknown, and the
  // autoscaler counts as silent.
  return Math.abs(now - at) >= FACTORY_SILENT_AFTER_MS;
}
