import { expect, it } from 'vitest';
import { type PendingReport, PendingReports } from '../../../agent/attempts/pending-reports.ts';
import { MEDIA_REPORTS, TIMED_REPORT_FRAME } from '../../../shared/wire/protocol-constants.ts';
import { NO_USAGE } from '../../../shared/wire/reported-usage.ts';

const report = (stream: number): PendingReport => ({
  stream,
  usage: { ...NO_USAGE, aborted: false, complete: true },
  name: { requestId: `r${stream}`, attempt: 1, receipt: '' },
  timings: { status: 200, firstMs: 1, totalMs: 2 },
});

it('of reports that no gateway stores the newest ten thousand are kept, and each that is lost is told', () => {
  const log: string[] = [];
  const reports = new PendingReports((line) => log.push(line));
  for (let stream = 1; stream <= 10_002; stream++) reports.add(report(stream));
  expect(reports.size).toBe(10_000);
  const [first] = reports.again(TIMED_REPORT_FRAME);
  expect(first).toMatchObject({ stream: 3 });
  expect(log).toHaveLength(2);
  reports.settled(3);
  expect(reports.size).toBe(9_999);
});

it('audio and images go only to a gateway that reads them', () => {
  const reports = new PendingReports(() => {});
  const usage = { ...NO_USAGE, complete: true, audioMs: 3_000, images: 2 };
  reports.add({ ...report(1), usage });
  expect([...reports.again(MEDIA_REPORTS)]).toMatchObject([{ usage }]);
  const [older] = reports.again(TIMED_REPORT_FRAME);
  expect(older).toEqual({ type: 'report', ...report(1), usage: { ...NO_USAGE, complete: true } });
});
