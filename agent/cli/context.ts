import type { Env } from '../config/sources.ts';
import type { Io } from './io.ts';
import type { Outside } from './start.ts';

/** What the program hands to its commands. */
export interface Context {
  env: Env;
  io: Io;
  /** Replaced in tests. */
  outside: Partial<Outside>;
}
