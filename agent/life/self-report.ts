import type { EngineLoad } from '../../shared/routing/node-load.ts';
import { LOCAL_ISSUER } from '../../shared/routing/trusted-providers.ts';
import type { AgentStatus, NetworkRow } from '../host/control-protocol.ts';
import { agentPage } from '../observe/metrics-page.ts';
import type { AgentParts } from './agent-parts.ts';
import { componentStatus } from './component-status.ts';
import type { GpuMonitor } from './gpu-monitor.ts';
import type { JobWatch } from './job-watch.ts';
import type { MeshMembership } from './mesh-membership.ts';
import { networkRows } from './network-table.ts';

interface SelfReportOptions {
  parts: AgentParts;
  job: Pick<JobWatch, 'record'>;
  network: Pick<MeshMembership, 'issuerName'>;
  /** Undefined while no engine answers. */
  load(): EngineLoad | undefined;
  gpus: Pick<GpuMonitor, 'current'>;
  /** Returns the name of the agent's state directory: the session, if there is one. */
  name(): string;
}

/** What the agent reports about itself to its own commands and to Prometheus. */
export class SelfReport {
  readonly #options: SelfReportOptions;
  readonly #startedAt = new Date();

  constructor(options: SelfReportOptions) {
    this.#options = options;
  }

  networkRows(): NetworkRow[] {
    const { parts, network } = this.#options;
    const { mesh, id } = parts.sessions?.current ?? {};
    if (mesh === undefined || id === undefined) return [];
    return networkRows(mesh, id, (issuer) => network.issuerName(issuer) ?? LOCAL_ISSUER);
  }

  /** The metrics page in Prometheus' text format. */
  page(): string {
    const { parts, load, gpus } = this.#options;
    const { user, system } = process.cpuUsage();
    return agentPage({
      status: this.status(),
      load: load(),
      mesh: parts.sessions?.current?.mesh,
      gpus: gpus.current,
      meshInFlight: parts.requests?.inFlight ?? 0,
      process: { rss: process.memoryUsage.rss(), cpuUs: user + system },
    });
  }

  status(): AgentStatus {
    const { parts, job, name } = this.#options;
    return {
      session: name(),
      started_at: this.#startedAt.toISOString(),
      ...componentStatus(parts),
      ...job.record(),
    };
  }
}
