/** The script that checks a login node. Its output is `name=value` lines, which `parseSite` reads. */

import { shellQuoted } from '../host/shell-words.ts';

/** Programs that `otela up` can use. */
export const PROGRAMS = ['sbatch', 'vllm', 'sglang', 'lmdeploy', 'llama-server', 'apptainer', 'enroot'] as const;

/** Engines that are looked for outside of the PATH, if none is on it. */
const ENGINES = ['vllm', 'sglang', 'lmdeploy', 'llama-server'] as const;
/** Where Python environments and conda environments are. */
const ENVIRONMENTS = [
  '.local',
  '.venv',
  '*',
  '.conda/envs/*',
  '*conda3/envs/*',
  '*forge3/envs/*',
  '.virtualenvs/*',
] as const;
/** Names of modules and images that have an engine, as a part of an extended regular expression. */
const NAMES = 'vllm|sglang|lmdeploy|llama[.]?cpp';
/** Lines of each kind, and the time that modules and quotas of a busy site may take. */
const FOUND_MAX = 20;
const FOUND_S = 20;

/**
 * Looks for engines in environments, modules and Apptainer images of the user. Modules are listed in another shell,
 * because a time limit needs a program.
 */
const FIND_ENGINES = `if ! command -v ${ENGINES.join(' ')} >/dev/null 2>&1; then
  for directory in ${ENVIRONMENTS.map((name) => `"$HOME"/${name}/bin`).join(' ')}; do
    for program in ${ENGINES.join(' ')}; do
      if [ -x "$directory/$program" ]; then say environment "$program $directory"; fi
    done
  done | head -n ${FOUND_MAX}
  timeout ${FOUND_S} bash -lc 'module -t avail ${NAMES.replaceAll('|', ' ').replaceAll('[.]?', '.')}' 2>&1 | grep -iE '^([^ :]*/)?(${NAMES})(/[^ :]+)?$' | head -n ${FOUND_MAX} | sed 's/^/module=/'
  for file in "$HOME"/*.sif "$HOME"/*/*.sif \${SCRATCH:+"$SCRATCH"/*.sif}; do
    if [ -r "$file" ]; then say image "$file"; fi
  done | grep -iE '(${NAMES})[^/]*$' | head -n ${FOUND_MAX}
fi`;

/** Space that the user may fill in the home directory, by the quota of its file system, in KiB. */
const FIND_QUOTA = `device=$(df -P "$HOME" 2>/dev/null | awk 'NR == 2 { print $1 }')
{ timeout ${FOUND_S} quota -w; timeout ${FOUND_S} lfs quota -q -u "$(id -un)" "$HOME"; } 2>/dev/null |
  awk -v device="$device" -v home="$HOME" '$1 == device || $1 == home { gsub(/[*]/, "", $2); most = $4 > 0 ? $4 : $3; left = most - $2; if (most > 0) print "quota_kib=" (left < 0 ? 0 : left) }'`;

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
${FIND_ENGINES}
${FIND_QUOTA}
if [ -n "\${SCRATCH:-}" ] && [ -w "$SCRATCH" ]; then say scratch "$SCRATCH"; fi
if [ -n "\${HF_HOME:-}" ] || [ -d "$HOME/.cache/huggingface" ]; then say cache yes; fi
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
