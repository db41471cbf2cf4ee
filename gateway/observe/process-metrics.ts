import type { MetricStore } from '../../shared/metrics/metric-store.ts';
import type { DatabaseState, ProcessState } from '../env.ts';
import {
  CLOCK_TIMESTAMP,
  DATABASE_CONNECTIONS,
  DATABASE_SILENCE,
  DATABASE_WAITING,
  GATEWAY_PROCESSES,
  GATEWAY_SLOTS,
  OBJECTS_UNSTORED,
  TLS_CERTIFICATE_END,
} from './metric-families.ts';

let tlsEndsS: number | undefined;

/**
 * Call this when a host that terminates TLS loads a certificate. `endsS`: end of the certificate in seconds since 1970.
 */
export function setCertificateEnd(endsS: number): void {
  tlsEndsS = endsS;
}

/** Adds the metrics of the process: its clock, and its certificate if it terminates TLS. */
export function addProcessMetrics(metrics: MetricStore): void {
  metrics.set(CLOCK_TIMESTAMP, [], Date.now() / 1000);
  if (tlsEndsS !== undefined) metrics.set(TLS_CERTIFICATE_END, [], tlsEndsS);
}

/** Adds the metrics of connections to PostgreSQL, and of this process among those that share the database. */
export function addDatabaseMetrics(
  metrics: MetricStore,
  database: DatabaseState | undefined,
  process: ProcessState | undefined,
): void {
  for (const { name, busy, idle, waiting } of database?.pools ?? []) {
    metrics.set(DATABASE_CONNECTIONS, [name, 'busy'], busy);
    metrics.set(DATABASE_CONNECTIONS, [name, 'idle'], idle);
    metrics.set(DATABASE_WAITING, [name], waiting);
  }
  if (process === undefined) return;
  metrics.set(DATABASE_SILENCE, [], process.databaseSilentMs / 1000);
  metrics.set(GATEWAY_PROCESSES, [], process.processes);
  metrics.set(GATEWAY_SLOTS, [], process.slots);
  metrics.set(OBJECTS_UNSTORED, [], process.unstored);
}
