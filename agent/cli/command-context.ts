import type { Env } from '../config/setting.ts';
import type { AgentIo } from './io.ts';
import type { AgentDependencies } from './start.ts';

/** The context that the program passes to its commands. */
export interface CommandContext {
  env: Env;
  io: AgentIo;
  /** Replaced in tests. */
  outside: Partial<AgentDependencies>;
}
