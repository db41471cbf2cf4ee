/**
 * GPUs in Slurm's lists of generic resources: the GRES and GRES_USED columns of sinfo(1), and the requests of
 * sbatch(1).
 */

interface GpuGres {
  /** Slurm's name of the GPU type. Undefined if the list names none, as in `gpu:8` and `gpu:(null):8`. */
  type: string | undefined;
  count: number;
}

/** Maximum length of a list; the rest is ignored. sinfo's columns are narrower. */
const LIST_MAX_CHARS = 4096;
const SCALES: Readonly<Record<string, number>> = {
  '': 1,
  K: 2 ** 10,
  M: 2 ** 20,
  G: 2 ** 30,
  T: 2 ** 40,
  P: 2 ** 50,
};

/**
 * The entries named `gpu` of a list such as `gpu:a100:4(S:0-1),gpu:1g.10gb:7,shard:40`. The count is the last field,
 * not the first number, because a type may begin with digits or consist of them (`gpu:3090:8`). `gpu` without a count
 * is one GPU. An entry with an invalid count is omitted.
 */
export function gpuGres(list: string): GpuGres[] {
  return entries(list.slice(0, LIST_MAX_CHARS)).flatMap((entry): GpuGres[] => {
    // `(null)` means that there is no type. The suffix after the count, such as `(S:0-1)` or `(IDX:0,2-3)`, names
    // individual GPUs.
    const [name, ...fields] = entry.replace('(null)', '').replace(/\(.*$/, '').trim().split(':');
    if (name !== 'gpu') return [];
    const given = fields.filter((field) => field !== 'no_consume');
    const last = given.pop();
    const [, digits, scale = ''] = /^(\d{1,9})([KMGTP]?)$/i.exec(last ?? '1') ?? [];
    if (digits === undefined || given.length > 1) return [];
    return [{ type: given[0] || undefined, count: Number(digits) * (SCALES[scale.toUpperCase()] ?? 1) }];
  });
}

/** Splits at commas outside of parentheses. */
function entries(list: string): string[] {
  const found: string[] = [];
  let depth = 0;
  let from = 0;
  for (let at = 0; at < list.length; at++) {
    if (list[at] === '(') depth++;
    else if (list[at] === ')') depth = Math.max(0, depth - 1);
    else if (list[at] === ',' && depth === 0) {
      found.push(list.slice(from, at));
      from = at + 1;
    }
  }
  return [...found, list.slice(from)];
}

/**
 * Number of GPUs that no job uses, by type. If used GPUs are listed without a type, they may be of any type, so they
 * are subtracted from each type. So a node is never reported with more free GPUs than it has.
 */
export function freeGpus(configured: string, used: string): Map<string | undefined, number> {
  const free = byType(gpuGres(configured));
  const taken = gpuGres(used);
  for (const [type, count] of free) {
    const ours = taken.filter((one) => type === undefined || one.type === undefined || one.type === type);
    free.set(
      type,
      Math.max(
        0,
        ours.reduce((rest, one) => rest - one.count, count),
      ),
    );
  }
  return free;
}

function byType(gpus: readonly GpuGres[]): Map<string | undefined, number> {
  const counts = new Map<string | undefined, number>();
  for (const { type, count } of gpus) counts.set(type, (counts.get(type) ?? 0) + count);
  return counts;
}

/**
 * True if Slurm's type names a part of a GPU (`1g.10gb`, `a100_3g.20gb`), which engines that need whole GPUs cannot
 * use.
 */
export function isGpuSlice(type: string): boolean {
  return /(^|[^a-z\d])\d+g\.\d+gb/i.test(type);
}

/** Parses the value of sbatch's `--gpus-per-node`: a number, or Slurm's type and a number. Undefined: neither. */
export function gpuRequest(text: string): { type: string | undefined; count: number } | undefined {
  const [, type, count] = /^(?:([A-Za-z\d][\w.-]{0,127}):)?([1-9]\d{0,2})$/.exec(text) ?? [];
  return count === undefined ? undefined : { type, count: Number(count) };
}
