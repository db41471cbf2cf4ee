import type { Env } from '../config/setting.ts';
import type { SignalSource } from '../life/ending-signals.ts';
import type { FaultSource } from '../life/uncaught-errors.ts';
import type { AdmissionOptions, GatewayAdmission } from '../tunnel/gateway-admission.ts';
import type { Tunnel, TunnelOptions } from '../tunnel/tunnel-types.ts';
import type { AgentIo } from './agent-io.ts';

/** The agent's connections to the outside; passed in so that a test can replace a gateway. */
export interface AgentDependencies {
  openTunnel(options: TunnelOptions): Tunnel;
  admit(options: AdmissionOptions): Promise<GatewayAdmission>;
  signals: SignalSource;
  faults: FaultSource;
  /** Time after which an engine that another process started counts as stopped if nothing listens at its address. */
  engineGoneMs?: number;
  /** Command that informs gateways if this process is killed; see AgentRun. */
  willCommand?: readonly string[];
  /** True if sessions join the mesh; default true. */
  joinMesh?: boolean;
}

/** What the program passes to its commands. */
export interface CommandContext {
  env: Env;
  io: AgentIo;
  /** Replaced in tests. */
  outside: Partial<AgentDependencies>;
}
