import type { Env } from '../../env.ts';
import { R2Files } from './r2-files.ts';

/** Gives the bindings of this isolate their file store, where there is a bucket. */
export function withFiles(env: Env): Env {
  if (env.FILES === undefined && env.BUCKET !== undefined) env.FILES = new R2Files(env.BUCKET);
  return env;
}
