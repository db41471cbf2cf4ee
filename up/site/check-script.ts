/** The script that checks a login node. Its output is `name=value` lines, which `parseSite` reads. */

import { shellQuoted } from '../host/shell-words.ts';

/** Programs that `otela up` can use. */
export const PROGRAMS = ['sbatch', 'vllm', 'sglang', 'lmdeploy', 'llama-server', 'apptainer', 'enroot'] as const;

/** The first line of the output. What a login shell prints before it is ignored. */
export const SITE_MARK = 'otela-site 1';

/** Begins the line that says which line of the user's setup failed. */
export const SETUP_FAILED = 'otela-setup failed: ';

/** A controller that does not answer must not hold up the check: ssh has no time limit while a person logs in. */
const SLURM_S = 30;

/**
 * @param setup shell lines of the user, such as `module load vllm`, which run in the job too
 * @param more a further script; its output follows
 */
export function checkScript(setup: readonly string[], more = ''): string {
  return `
${setup.map((line) => `{ ${line}\n} >/dev/null || { echo ${shellQuoted(`${SETUP_FAILED}${line}`)}; exit 0; }`).join('\n')}
echo '${SITE_MARK}'
say() { printf '%s=%s\\n' "$1" "$2"; }
say system "$(uname -s) $(uname -m)"
say host "$(hostname)"
say home "$HOME"
say user "$(id -un)"
say free_kib "$(df -Pk "$HOME" 2>/dev/null | awk 'NR == 2 { print $4 }')"
for program in ${PROGRAMS.join(' ')}; do
  if command -v "$program" >/dev/null 2>&1; then say program "$program"; fi
done
if command -v sinfo >/dev/null 2>&1; then
  timeout ${SLURM_S} sinfo --noheader -N -o 'node=%P|%l|%G|%T|%o' || say failed sinfo
  timeout ${SLURM_S} sacctmgr --noheader --parsable2 show associations user="$(id -un)" format=account 2>/dev/null | sort -u | sed 's/^/account=/'
fi
for file in "$HOME"/.otela/agent/*/otela-agent; do
  if [ -x "$file" ]; then say agent "$(basename "$(dirname "$file")")"; fi
done
${more}
`;
}
