import { expect, it } from 'vitest';
import {
  DECISIONS_MAX,
  EXCHANGE_MAX_BYTES,
  ExchangeError,
  type FactoryReport,
  JOBS_MAX,
  LOG_TAIL_MAX,
  MODELS_MAX,
  parseExchangeAnswer,
  parseReport,
  TEXT_MAX,
} from '../../../shared/factory/factory-exchange.ts';

const REPORT: FactoryReport = {
  version: 1,
  factory: 'swiss-pool',
  config_revision: '0123456789ab',
  wait_ms: 25_000,
  models: [{ id: 'org/m', state: 'cold', min: 0, max: 2, pending: 0, running: 0, ready: 0, estimate_ms: 90_000 }],
  jobs: [],
  clusters: [{ id: 'alps', launcher: 'slurm', reachable: true, pending: 0, running: 0 }],
  decisions: [],
  drain: [],
};

it('reads back what a factory wrote, and drops what it does not know', () => {
  expect(parseReport(JSON.parse(JSON.stringify({ ...REPORT, later: 1 })))).toEqual(REPORT);
});

it('names the place of a fault', () => {
  const [model] = REPORT.models;
  expect(() => parseReport({ ...REPORT, models: [{ ...model, state: 'warm' }] })).toThrow(
    /^report\.models\.0\.state: /,
  );
  expect(() => parseExchangeAnswer({ version: 1, revision: '1', demand: [{ model: 'm' }], nodes: [] })).toThrow(
    ExchangeError,
  );
});

it('refuses an answer held longer than a proxy would wait', () => {
  expect(() => parseReport({ ...REPORT, wait_ms: 25_001 })).toThrow(/wait_ms/);
});

it('has room for a report at all of its bounds, with log tails of 100 failed jobs', () => {
  const text = 'x'.repeat(TEXT_MAX);
  const full: FactoryReport = {
    ...REPORT,
    models: Array.from({ length: MODELS_MAX }, (_, n) => ({
      ...(REPORT.models[0] as FactoryReport['models'][number]),
      id: `${n}`.padEnd(256, 'm'),
      reason: text,
    })),
    jobs: Array.from({ length: JOBS_MAX }, (_, n) => ({
      cluster: 'alps',
      id: String(n),
      model: 'm'.repeat(64),
      state: 'failed',
      gpus: 4,
      since_ms: 1,
      reason: text,
      ...(n < 100 ? { log_tail: 'l'.repeat(LOG_TAIL_MAX) } : {}),
    })),
    decisions: Array.from({ length: DECISIONS_MAX }, () => ({ at: '2026-01-01T00:00:00.000Z', text })),
  };
  expect(JSON.stringify(parseReport(full)).length).toBeLessThan(EXCHANGE_MAX_BYTES);
});
