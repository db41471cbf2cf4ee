import type { RequestRecorder } from './proxy-host.ts';

function ignore(): void {}

export const NULL_RECORDER: RequestRecorder = {
  queueEntered: () => ignore,
  attempt: ignore,
  responseStarted: ignore,
  refused: ignore,
  refusedLate: ignore,
  responseBroke: ignore,
  clientDisconnected: ignore,
  responseEnded: ignore,
};
