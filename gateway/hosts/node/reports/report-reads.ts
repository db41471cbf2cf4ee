/** Reads the accounts and hourly records for reports on a separate thread. */
import { join } from 'node:path';
import type { Env } from '../../../env.ts';
import type { ObjectNamespace, ObjectStub } from '../../../platform/object-context.ts';
import { storageHealth } from '../../../platform/storage/storage-health.ts';
import { HOUR_READS } from '../../../usage/hour/hour-records-reader.ts';
import type { UsageObject } from '../../../usage/hour/usage-hour-object.ts';
import { fileName } from '../object-file-name.ts';
import { ReportThread } from './report-thread.ts';

/** The part of D1 that a report needs. */
interface Statement {
  bind(...bindings: unknown[]): Statement;
  all(): Promise<unknown>;
  raw(): Promise<unknown>;
}

export class ReportReads {
  readonly #hours: string;
  readonly #thread = new ReportThread();

  /** @param hours directory of the hours' files */
  constructor(hours: string) {
    this.#hours = hours;
  }

  /** Returns hour objects that read on the thread; all other calls go to the objects. */
  hours(objects: ObjectNamespace<UsageObject>): ObjectNamespace<UsageObject> {
    return {
      getByName: (name) => {
        const stub = objects.getByName(name);
        const file = join(this.#hours, fileName(name));
        const reads = HOUR_READS.map((method) => {
          const here = (...args: unknown[]) => Reflect.apply(stub[method], stub, args) as Promise<unknown>;
          const read = (...args: unknown[]) =>
            this.#runInThread({ kind: 'hour', file, method, args }, () => here(...args));
          return [method, read] as const;
        });
        return Object.assign(Object.create(stub), Object.fromEntries(reads)) as ObjectStub<UsageObject>;
      },
    };
  }

  /** Returns the accounts in `file`, read on the thread. */
  accounts(file: string, d1: Env['DB']): Env['DB'] {
    const statement = (query: string, bindings: readonly unknown[]): Statement => ({
      bind: (...given) => statement(query, given),
      all: () =>
        this.#runInThread({ kind: 'accounts', file, query, bindings, as: 'rows' }, () =>
          d1
            .prepare(query)
            .bind(...bindings)
            .all(),
        ),
      raw: () =>
        this.#runInThread({ kind: 'accounts', file, query, bindings, as: 'lists' }, () =>
          d1
            .prepare(query)
            .bind(...bindings)
            .raw(),
        ),
    });
    return { prepare: (query: string) => statement(query, []) } as unknown as Env['DB'];
  }

  close(): Promise<void> {
    return this.#thread.close();
  }

  /** While the disk is full, the gateway opens its files exclusively, so reports are read on this thread. */
  async #runInThread(job: Parameters<ReportThread['run']>[0], here: () => Promise<unknown>): Promise<unknown> {
    if (storageHealth.failure !== undefined) return here();
    try {
      return await this.#thread.run(job);
    } catch (error) {
      // A file that was opened while the disk was full can be shared again after its next use.
      if (error instanceof Error && error.message.includes('database is locked')) return here();
      throw error;
    }
  }
}
