import type { MetricStore } from '../../shared/metrics/metric-store.ts';
import { CLOCK_TIMESTAMP, TLS_CERTIFICATE_END } from './metric-families.ts';

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
