/** `otela-agent start`: joins the gateways with this machine's engine and stays until it ends. */

import { UsageError } from '../config/exit.ts';
import { parseFlags } from '../config/flags.ts';
import { START_FLAGS } from '../config/settings.ts';
import { type Env, readSettings } from '../config/sources.ts';
import { startConfig } from '../config/start-config.ts';
import { Lifecycle } from '../life/lifecycle.ts';
import { processSignals, type SignalSource } from '../life/signals.ts';
import { type Admission, type AdmissionOptions, admit } from '../tunnel/admission.ts';
import { openTunnel } from '../tunnel/tunnel.ts';
import type { Tunnel, TunnelOptions } from '../tunnel/types.ts';
import type { Io } from './io.ts';

/** What connects the agent with the outside; handed in so that a test can stand in for a gateway. */
export interface Outside {
  openTunnel(options: TunnelOptions): Tunnel;
  admit(options: AdmissionOptions): Promise<Admission>;
  signals: SignalSource;
  /** Until somebody else's engine that does not listen counts as stopped. */
  engineGoneMs?: number;
  /** See Lifecycle's. */
  willCommand?: readonly string[];
  /** Whether sessions meet other agents; default true. */
  joinMesh?: boolean;
}

const REAL: Outside = { openTunnel, admit, signals: processSignals };

export async function startCommand(
  argv: readonly string[],
  env: Env,
  io: Io,
  outside: Partial<Outside>,
): Promise<number> {
  const { flags, positionals, command } = parseFlags(argv, START_FLAGS);
  const [stray] = positionals;
  if (stray !== undefined) {
    const hint = command
      ? ''
      : `; the engine's command comes after --, as in: otela-agent start -- ${positionals.join(' ')}`;
    throw new UsageError(`"${stray}" is not a flag${hint}`);
  }
  if (command?.length === 0) throw new UsageError('no command after -- (leave the -- out to join without an engine)');
  const config = startConfig(readSettings(flags, env), command, env);
  for (const warning of config.warnings) io.log(`warning: ${warning}`);
  const lifecycle = new Lifecycle({
    ...REAL,
    ...outside,
    config,
    env,
    stdout: io.stdout,
    stderr: io.stderr,
    log: io.log,
  });
  return lifecycle.run();
}
