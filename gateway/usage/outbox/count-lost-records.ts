import { USAGE_LOST } from '../../observe/metric-families.ts';
import { metricsReporter } from '../../observe/request-log.ts';
import { storageHealth } from '../../platform/storage/storage-health.ts';

/** Maximum records of one node that wait to be forwarded. Beyond it the oldest are dropped. */
export const WAITING_MAX = 200_000;

/** Counts stored records that are deleted before they were forwarded. */
export function countLostRecords(records: number): void {
  if (records === 0) return;
  storageHealth.giveUp(records);
  metricsReporter.counts.count(USAGE_LOST, [], records);
  console.error(`${records} usage records are lost: more than ${WAITING_MAX} records of one node were waiting`);
}
