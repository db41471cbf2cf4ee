/** The systemd unit of an agent that starts with the machine. */

export interface ServiceUnit {
  /** Command line of the agent, from its program on. */
  command: readonly string[];
  /** True: the unit belongs to the user's own systemd, otherwise to that of the machine. */
  user: boolean;
  /** PATH of the engine's commands. */
  path: string;
  home: string;
}

/** After SIGTERM the agent waits 27 s for running requests, then 10 s for the engine. */
const STOP_S = 60;
/** EXIT_USAGE and EXIT_REFUSED: a restart would not help. */
const FINAL_EXITS = '2 69';

export function serviceUnit({ command, user, path, home }: ServiceUnit): string {
  return `[Unit]
Description=OpenTela agent
After=network-online.target
Wants=network-online.target

[Service]
ExecStart=${command.map(quoted).join(' ')}
Environment=${quoted(`PATH=${path}`)}
Environment=${quoted(`HOME=${home}`)}
WorkingDirectory=${home.replaceAll('%', '%%')}
# Only the agent gets SIGTERM: it drains, and then ends the engine.
KillMode=mixed
TimeoutStopSec=${STOP_S}
Restart=on-failure
RestartSec=10
RestartPreventExitStatus=${FINAL_EXITS}

[Install]
WantedBy=${user ? 'default.target' : 'multi-user.target'}
`;
}

/** Quotes a word as systemd.syntax(7) and systemd.service(5) want it: `$` and `%` have a meaning there. */
function quoted(word: string): string {
  const escaped = word.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('%', '%%').replaceAll('$', '$$$$');
  return /^[\w@+=:,./-]+$/.test(escaped) ? escaped : `"${escaped}"`;
}
