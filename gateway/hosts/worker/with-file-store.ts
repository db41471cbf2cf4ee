import type { Env } from '../../env.ts';
import { R2FileStore } from './r2-file-store.ts';

/** Adds the file store to this isolate's bindings, if there is a bucket. */
export function withFileStore(env: Env): Env {
  if (env.FILES === undefined && env.BUCKET !== undefined) env.FILES = new R2FileStore(env.BUCKET);
  return env;
}
