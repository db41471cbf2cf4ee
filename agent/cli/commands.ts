/** Every command of `otela-agent`: what help, "did you mean" and shell completion know of it. */
import {
  type CompletedProgram,
  completionScript,
  isShell,
  SHELLS,
  type Taken,
} from '../../shared/terminal/completion.ts';
import { EXIT_DONE, UsageError } from '../config/exit.ts';
import type { FlagSpec } from '../config/flags.ts';
import { START_FLAGS } from '../config/settings.ts';
import { FLAGS as CONFIG } from './config.ts';
import { FLAGS as DOCTOR } from './doctor/doctor.ts';
import { FLAGS as DRAIN } from './drain.ts';
import type { Io } from './io.ts';
import { FLAGS as LOGS } from './logs.ts';
import { FLAGS as METRICS } from './metrics.ts';
import { FLAGS as MODELS } from './models.ts';
import { FLAGS as SBATCH } from './sbatch.ts';
import { FLAGS as STATUS } from './status.ts';
import { FLAGS as VERSION } from './version.ts';

interface AgentCommand {
  summary: string;
  flags: readonly FlagSpec[];
  takes?: Taken;
  /** Another program's command line may follow. */
  runs?: boolean;
}

export const COMMANDS: Readonly<Record<string, AgentCommand>> = {
  start: { summary: 'run an engine (or find one that runs) and join the gateways', flags: START_FLAGS, runs: true },
  status: { summary: 'what your agents on this machine are doing   (--json)', flags: STATUS },
  models: { summary: 'what they serve                              (--json)', flags: MODELS },
  logs: { summary: "the engine's last output                     (--follow, --json)", flags: LOGS },
  metrics: { summary: "the agent's figures, for Prometheus           (--json)", flags: METRICS },
  drain: { summary: 'finish what runs, then leave                 (--wait, --json)', flags: DRAIN },
  doctor: { summary: 'what would stop an agent here, and the fix   (--json)', flags: DOCTOR, runs: true },
  sbatch: { summary: 'a ready job script; --submit hands it to Slurm (--json)', flags: SBATCH },
  config: { summary: 'every setting and where its value came from  (--json)', flags: CONFIG },
  completion: { summary: 'for a shell: source <(otela-agent completion bash)', flags: [], takes: SHELLS },
  version: { summary: 'of this program                              (--json)', flags: VERSION },
  help: { summary: 'this', flags: [] },
};

export function isCommand(word: string): boolean {
  return Object.hasOwn(COMMANDS, word);
}

export function completionCommand([shell, ...rest]: readonly string[], io: Io): number {
  if (!isShell(shell) || rest.length > 0)
    throw new UsageError(`which shell? otela-agent completion ${SHELLS.join('|')}`);
  io.stdout.write(completionScript(shell, PROGRAM));
  return EXIT_DONE;
}

const PROGRAM: CompletedProgram = {
  name: 'otela-agent',
  commands: Object.entries(COMMANDS).map(([name, { summary, flags, takes, runs = false }]) => ({
    name,
    // Without what stands in the list's third column.
    summary: summary.replace(/ {2,}\(.*$/, ''),
    ...(takes === undefined ? {} : { takes }),
    runs,
    flags: [
      ...flags.map(({ flag, kind, takes: value = 'word', help }) => ({
        name: flag,
        ...(kind === 'switch' ? {} : { takes: value }),
        ...(help === undefined ? {} : { help }),
      })),
      { name: 'help', help: 'says more' },
    ],
  })),
};
