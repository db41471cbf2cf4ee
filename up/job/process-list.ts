/** Jobs on a machine without a batch system: each is a process group with files in the run's directory. */
import type { RunJob } from './run-job-list.ts';

/** A shell function that prints a process's command line. Images of engines often have no `ps`. */
const ARGUMENTS = `args() { ps -o args= -p "$1" 2>/dev/null || tr '\\0' ' ' 2>/dev/null <"/proc/$1/cmdline"; }`;

/**
 * The script that starts a job. Its id is the time of its start in seconds, and two digits of the run: the engine's
 * port follows from it, and two models may start in the same second. The job has its own process group
 * (`set -m`), so it outlives the connection, and one signal reaches agent and engine.
 * @param at the run's directory, for the shell
 */
export function startScript(at: string): string {
  return `set -e; umask 077; mkdir -p ${at}; cd ${at}
sum=$(pwd | cksum); id=$(date +%s)$(printf %02d $((\${sum%% *} % 100))); while [ -e $id.sh ]; do id=$((id + 1)); done
cat >$id.sh
set -m
OTELA_UP_JOB=$id nohup bash -c "trap : TERM; cd; bash '$PWD/$id.sh'; echo \\$? >'$PWD/$id.exit'" >$id.log 2>&1 </dev/null &
echo "$! $(date +%s)" >$id.pid
echo "job=$id"`;
}

/**
 * The script that lists the jobs. A process counts as the job's only if its command line has the job's id, because the
 * number may belong to another process after a restart of the machine.
 */
export function processListScript(at: string): string {
  return `cd ${at} 2>/dev/null || exit 0
${ARGUMENTS}
for file in *.pid; do
  [ -e "$file" ] || continue
  id=\${file%.pid}; read -r pid start <"$file"
  state=ended; reason=$(cat $id.exit 2>/dev/null || echo killed)
  if [ ! -e $id.exit ] && args "$pid" | grep -q "/$id.sh"; then state=running; reason=; fi
  echo "job=$id|$state|$reason|$start"
done`;
}

export function parseProcessList(out: string): RunJob[] {
  return [...out.matchAll(/^job=(\d{1,12})\|(running|ended)\|(\w*)\|(\d*)$/gm)]
    .map(([, id = '', state = '', reason = '', start = '']): RunJob => {
      const code = reason === '' ? '' : reason === 'killed' ? 'killed' : `exit code ${reason}`;
      return {
        id,
        state: state === 'running' ? 'running' : 'ended',
        reason: code,
        startMs: start === '' ? undefined : Number(start) * 1_000,
      };
    })
    .toSorted((a, b) => Number(a.id) - Number(b.id));
}

/** The script that sends TERM to the jobs, upon which the agents end their engines. */
export function endScript(at: string, ids: readonly string[]): string {
  if (!ids.every((id) => /^\d{1,12}$/.test(id))) throw new RangeError(`"${ids.join(' ')}" are not ids of jobs`);
  return `cd ${at} 2>/dev/null || exit 0
${ARGUMENTS}
for id in ${ids.join(' ')}; do
  read -r pid start <$id.pid && args "$pid" | grep -q "/$id.sh" && kill -TERM -- "-$pid"
done
true`;
}
