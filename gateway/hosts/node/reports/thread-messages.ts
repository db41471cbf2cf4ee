/** Messages between the gateway's thread and the report thread. */
import type { HourRead } from '../../../usage/hour/hour-records-reader.ts';

/** One statement on the accounts, or one method of HourRecordsReader on an hour's file. */
export type ReportJob =
  | { kind: 'accounts'; file: string; query: string; bindings: readonly unknown[]; as: 'rows' | 'lists' }
  | { kind: 'hour'; file: string; method: HourRead; args: readonly unknown[] };

export interface ReportRequest {
  id: number;
  job: ReportJob;
}

export type ReportReply = { id: number; result: unknown } | { id: number; error: string };
