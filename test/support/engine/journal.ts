/**
 * Writes each request and its end to a file, before anything else happens, so that it survives a `kill -9`. Requests
 * are distinguished by a marker that their sender put into the prompt, `[[like-this]]`.
 */
import { openSync, writeSync } from 'node:fs';
import { z } from 'zod';
import type { EngineRequest } from './record.ts';

const MARKER = /\[\[([\w-]{1,64})\]\]/;

export const entrySchema = z.object({
  /** Milliseconds since 1970. */
  at: z.number(),
  what: z.enum(['up', 'begun', 'finished', 'aborted']),
  /** The engine's number of the request; 0: the entry is not about a request. */
  id: z.number(),
  marker: z.string(),
  tokens: z.number(),
  /** Status of the answer, after its end. */
  status: z.number(),
  pid: z.number(),
});

export type JournalEntry = z.infer<typeof entrySchema>;

export class Journal {
  readonly #file: number;

  constructor(path: string) {
    this.#file = openSync(path, 'a', 0o600);
    this.#write({ what: 'up', id: 0, marker: '', tokens: 0, status: 0 });
  }

  /** Requests without a marker are not recorded. */
  tell(what: 'begun' | 'finished' | 'aborted', request: EngineRequest, status = 0): void {
    const marker = MARKER.exec(request.bodyStart)?.[1];
    if (marker !== undefined) this.#write({ what, id: request.id, marker, tokens: request.tokensSent, status });
  }

  #write(entry: Omit<JournalEntry, 'at' | 'pid'>): void {
    writeSync(this.#file, `${JSON.stringify({ at: Date.now(), ...entry, pid: process.pid })}\n`);
  }
}
