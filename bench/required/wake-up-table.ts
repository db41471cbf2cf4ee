/** What idle cores add to the latency of a request, as stored and shown. */
import { markdown, show } from '../report.ts';

/** Medians of the rounds. */
export interface Figures {
  /** Added to the direct median of the same round, in ms. */
  added: number;
  cpuUs: number;
  switches: number;
}

export interface WakeUpRow {
  kind: 'unary' | 'TTFT';
  perSecond: number;
  side: string;
  idle: Figures;
  busy: Figures;
}

export function wakeUpTable(rows: readonly WakeUpRow[]): string {
  const head = ['request', 'side', 'added', 'added, no core idles', 'processor time', 'no core idles', 'switches'];
  const lines = rows.map(({ kind, perSecond, side, idle, busy }) => [
    `${kind === 'unary' ? 'non-streaming' : kind}, ${perSecond}/s`,
    side,
    `${show(idle.added)} ms`,
    `${show(busy.added)} ms`,
    `${show(idle.cpuUs)} µs`,
    `${show(busy.cpuUs)} µs`,
    show(idle.switches),
  ]);
  return markdown([head, ...lines]);
}
