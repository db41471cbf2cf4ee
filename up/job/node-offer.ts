/**
 * A second agent in the job, with which the job's own node joins the gateway of an institution (`otela share --gateway
 * --nodes`). It needs neither the relay nor this machine, so it serves while this machine sleeps.
 */

import type { Host } from '../host/host.ts';
import { shellQuoted } from '../host/shell-words.ts';
import { type Run, runDirectory } from '../state/runs.ts';
import { UpError } from '../up-error.ts';

/** The agent's exit code if every gateway refused it. */
const REFUSED = 69;
/** The agent's line after a gateway admitted it. */
const JOINED = /session ([\w-]+), state in /;
const LOG_LINES = 200;

/**
 * Lines of a job that start the second agent as long as there is an offer: a file with the gateway's URL and the end in
 * seconds since 1970. They run beside the first agent, the process `$$`.
 * @param agent the command of the agent on the host
 */
export function offerLines(run: Pick<Run, 'id'>, agent: readonly string[]): string[] {
  const command = agent.map((word) =>
    word.startsWith('~/') ? `"$HOME"/${shellQuoted(word.slice(2))}` : shellQuoted(word),
  );
  const flags = '--gateway "$url" --token-file offer.token --engine-url "http://127.0.0.1:$OTELA_PORT"';
  return [
    '(',
    `cd "$HOME"/${runDirectory(run)} || exit 0`,
    'unset OTELA_RELAY; child=; begun=',
    'offered() { read -r url until 2>/dev/null <offer && [ "$(date +%s)" -lt "$until" ]; }',
    'while sleep 2; do',
    '  if ! kill -0 $$ 2>/dev/null; then [ -z "$child" ] || kill -TERM "$child"; exit; fi',
    '  if [ -z "$child" ]; then',
    '    offered || continue',
    `    (umask 077; exec ${command.join(' ')} start ${flags}) >"offer-$OTELA_JOB_DIGITS.log" 2>&1 &`,
    '    child=$!; begun=$url',
    '  elif ! kill -0 "$child" 2>/dev/null; then',
    `    wait "$child"; [ $? -ne ${REFUSED} ] || rm -f offer`,
    '    child=',
    // After an offer to another gateway, the agent ends, and the next one joins there.
    '  elif ! offered || [ "$url" != "$begun" ]; then kill -TERM "$child"; fi',
    'done',
    ') </dev/null >/dev/null 2>&1 &',
  ];
}

const at = (run: Pick<Run, 'id'>) => `"$HOME"/${runDirectory(run)}`;

interface NodeOffer {
  /** URL of the institution's gateway. */
  to: string;
  /** Its join token. It travels as input. */
  token: string;
  endsAt: Date;
  /** The run's jobs that run. */
  jobs: readonly string[];
}

/** As OTELA_JOB_DIGITS of the job's script. */
const logOf = (job: string) => `offer-${job.slice(-9)}.log`;

/** @throws UpError if the host does not answer */
export async function offerNodes(
  host: Pick<Host, 'output'>,
  run: Run,
  { to, token, endsAt, jobs }: NodeOffer,
): Promise<void> {
  const offer = shellQuoted(`${to} ${Math.floor(endsAt.getTime() / 1_000)}`);
  // An agent at the same gateway continues until its offer ends, so its log stays: it names the node.
  const clean = `url=; until=0; read -r url until 2>/dev/null <offer && [ "$(date +%s)" -lt "$until" ] || url=
for log in offer-*.log; do
  case "$url $log" in ${['""', ...jobs.map((job) => shellQuoted(`${to} ${logOf(job)}`))].join('|')}) ;; *) rm -f "$log" ;; esac
done`;
  const script = `set -e; umask 077; cd ${at(run)}
${clean}
cat >offer.token; echo ${offer} >offer.new; mv offer.new offer`;
  await host.output(script, `${token}\n`);
}

/** @throws UpError if the host does not answer */
export async function endNodeOffer(host: Pick<Host, 'output'>, run: Run): Promise<void> {
  await host.output(`cd ${at(run)} 2>/dev/null && rm -f offer offer.token; true`);
}

/** Sessions of the run's nodes at the gateway; empty if none has joined yet. @throws UpError if the gateway refuses */
export async function joinedNodes(host: Pick<Host, 'output'>, run: Run): Promise<string[]> {
  const out = await host.output(
    `cd ${at(run)} && { [ -e offer ] || echo 'offer refused'; for file in offer-*.log; do [ ! -e "$file" ] || tail -n ${LOG_LINES} "$file"; done; }`,
  );
  const lines = out.trim().split('\n');
  if (lines[0] === 'offer refused')
    throw new UpError(
      `The gateway refuses the node: ${lines.at(-1)}`,
      'Ask its operator for a join token of your provider, and give the file with --token-file.',
    );
  return lines.flatMap((line) => JOINED.exec(line)?.[1] ?? []);
}
