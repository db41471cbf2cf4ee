/** The handlers of the control socket, by which this agent's command line sends commands. */
import type { ControlHandlers } from '../host/control-server.ts';
import type { AgentParts } from './agent-parts.ts';
import type { SelfReport } from './self-report.ts';

/** `parts` is read when a command arrives, because most parts are created later. */
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
