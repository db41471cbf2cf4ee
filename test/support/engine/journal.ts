/**
 * What an engine was asked and how it ended, in a file: written before anything else happens, so that it outlives a `kill -9`. Requests
 * are told apart by a marker that their sender put into the prompt, `[[like-this]]`.
 */
import { openSync, writeSync } from 'node:fs';
import { z } from 'zod';
import type { EngineRequest } from './record.ts';

const MARKER = /\[\[([\w-]{1,64})\]\]/;

export const entrySchema = z.object({
  /** ms since the epoch. */
  at: z.number(),
  what: z.enum(['up', 'begun', 'finished', 'aborted']),
  /** The engine's own number of the request; 0 where it is none. */
  id: z.number(),
  marker: z.string(),
  tokens: z.number(),
  /** Of the answer's head, once it has ended. */
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

  /** Requests without a marker are not kept. */
  tell(what: 'begun' | 'finished' | 'aborted', request: EngineRequest, status = 0): void {
    const marker = MARKER.exec(request.bodyStart)?.[1];
    if (marker !== undefined) this.#write({ what, id: request.id, marker, tokens: request.tokensSent, status });
  }

  #write(entry: Omit<JournalEntry, 'at' | 'pid'>): void {
    writeSync(this.#file, `${JSON.stringify({ at: Date.now(), ...entry, pid: process.pid })}\n`);
  }
}
