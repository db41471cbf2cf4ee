import { inBackground } from '../../../../shared/timing/in-background.ts';
import type { Env } from '../../../env.ts';
import { REGISTRY_OBJECT_NAME } from '../../../platform/registry-object-name.ts';

/** What a process reports to the registry about the agents of the other processes. */
export interface TunnelReports {
  /** These sessions have no socket at any process. Each process that notices it reports it. */
  onTunnelsClosed(sessions: readonly string[]): void;
  /** A link was opened to a process with sockets of these sessions. The registry may have heard that they are closed. */
  onTunnelsOpen(sessions: readonly string[]): void;
}

export function tunnelReports(env: () => Env, log: (line: string) => void): TunnelReports {
  const registry = () => env().REGISTRY.getByName(REGISTRY_OBJECT_NAME);
  return {
    onTunnelsClosed: (sessions) => {
      for (const session of sessions) inBackground(`the end of ${session}'s tunnel`, registry().closed(session), log);
    },
    onTunnelsOpen: (sessions) => {
      inBackground('the report of tunnels', registry().reopened([...sessions]), log);
    },
  };
}
