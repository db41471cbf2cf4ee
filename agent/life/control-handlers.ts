/** Commands that this agent's own command line may send to its socket. */
import type { ControlHandlers } from '../host/control-server.ts';
import type { AgentParts } from './agent-parts.ts';
import type { SelfReport } from './self-report.ts';

/** `parts` are read when a command arrives, because most of them are created later. */
export function controlHandlers(parts: AgentParts, report: SelfReport, drain: () => void): ControlHandlers {
  return {
    status: () => report.status(),
    network: () => report.networkRows(),
    metrics: () => report.page(),
    get weights() {
      return parts.weights;
    },
    drain,
    tail: () => parts.engine?.tail() ?? Buffer.alloc(0),
    follow: (listener) => parts.engine?.follow(listener) ?? (() => {}),
  };
}
