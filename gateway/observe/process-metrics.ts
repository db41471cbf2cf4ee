import type { MetricStore } from '../../shared/metrics/metric-store.ts';
import { CLOCK_TIMESTAMP, TLS_CERTIFICATE_END } from './families.ts';

let tlsEndsS: number | undefined;

/** Told by a host that ends TLS itself, whenever it takes a certificate. `endsS`: seconds since 1970. */
export function setCertificateEnd(endsS: number): void {
  tlsEndsS = endsS;
}

/** What a gateway knows of itself: its clock, and its certificate where it ends TLS. */
export function addProcessMetrics(metrics: MetricStore): void {
  metrics.set(CLOCK_TIMESTAMP, [], Date.now() / 1000);
  if (tlsEndsS !== undefined) metrics.set(TLS_CERTIFICATE_END, [], tlsEndsS);
}
