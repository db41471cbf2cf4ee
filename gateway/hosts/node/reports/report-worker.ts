/** The report thread. It opens files so that nothing is written, and handles one request after another. */

import { constants, getPriority, setPriority } from 'node:os';
import { type MessagePort, parentPort } from 'node:worker_threads';
import { errorText } from '../../../../shared/text/error-text.ts';
import { neverRejects } from '../../../../shared/timing/in-background.ts';
import { HourRecordsReader } from '../../../usage/hour/hour-records-reader.ts';
import { D1 } from '../d1.ts';
import { ReadSql } from '../object-storage.ts';
import { Database } from '../sqlite.ts';
import { OpenDatabases } from './open-databases.ts';
import type { ReportJob, ReportReply, ReportRequest } from './thread-messages.ts';

/** Nice value of the thread: if processors are busy, requests have priority over reports. */
const NICE = 10;

const files = new OpenDatabases((path) => new Database(path, { readOnly: true }));

async function run(job: ReportJob): Promise<unknown> {
  const database = files.open(job.file);
  if (job.kind === 'hour') {
    const reader = new HourRecordsReader(new ReadSql(database));
    // HOUR_READS contains names of methods of HourRecordsReader. Each takes the arguments of the usage object's method
    // of that name.
    return Reflect.apply(reader[job.method], reader, job.args) as unknown;
  }
  const statement = new D1(database).prepare(job.query).bind(...job.bindings);
  return job.as === 'rows' ? statement.all() : statement.raw();
}

async function answer(port: MessagePort, { id, job }: ReportRequest): Promise<void> {
  let reply: ReportReply;
  try {
    reply = { id, result: await run(job) };
  } catch (error) {
    reply = { id, error: errorText(error) };
  }
  port.postMessage(reply);
}

if (parentPort !== null) {
  // On Linux, setPriority affects only the calling thread; on other systems, the whole process.
  if (process.platform === 'linux') setPriority(Math.min(getPriority() + NICE, constants.priority.PRIORITY_LOW));
  const port = parentPort;
  port.on('message', (message: ReportRequest | 'end') => {
    if (message !== 'end') return neverRejects(answer(port, message));
    files.close();
    port.close();
  });
}
