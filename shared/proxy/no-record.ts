import type { Recorder } from './host.ts';

function ignore(): void {}

/** Discards all records. */
export const NO_RECORD: Recorder = {
  queues: () => ignore,
  attempt: ignore,
  answered: ignore,
  refused: ignore,
  refusedLate: ignore,
  broke: ignore,
  left: ignore,
  over: ignore,
};
