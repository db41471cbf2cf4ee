/** Computes parts in sequence. */
import { parentPort } from 'node:worker_threads';
import { neverRejects } from '../../../shared/timing/in-background.ts';
import { computePart, type Part } from './parts.ts';

async function compute(part: Part): Promise<void> {
  const startedAt = performance.now();
  const result = await computePart(part);
  parentPort?.postMessage({ result, seconds: (performance.now() - startedAt) / 1e3 });
}

parentPort?.on('message', (part: Part) => neverRejects(compute(part)));
