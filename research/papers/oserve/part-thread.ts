/** Computes parts in sequence. */
import { parentPort } from 'node:worker_threads';
import { computePart, type Part } from './parts.ts';

parentPort?.on('message', async (part: Part) => {
  const startedAt = performance.now();
  const result = await computePart(part);
  parentPort?.postMessage({ result, seconds: (performance.now() - startedAt) / 1e3 });
});
