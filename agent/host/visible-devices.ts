/** Which of a node's devices this process may use, by the variables that CUDA, HIP and ROCm read. Pure. */

export interface VisibleDevice<D> {
  /** `GPU-…`, `MIG-…`; empty when the tool does not tell. */
  uuid: string;
  /** MIG slices of this device, in the driver's order. */
  slices: readonly D[];
}

/**
 * The list with CUDA's meaning: an unset variable is everything; an index, a UUID or a beginning of one names a device;
 * order is kept; the first entry that names nothing ends the list, so `-1`, `NoDevFiles` and the empty string are none.
 *
 * One exception: where Slurm confines devices by cgroup (or a container shows only some), the tool lists the job's own
 * devices and counts them from 0, while a variable that came from outside still counts over the whole node (`2,3` of two
 * devices). As many indices as devices, some beyond the last: then they mean these devices.
 */
export function visibleDevices<D extends VisibleDevice<D>>(all: readonly D[], variable: string | undefined): D[] {
  if (variable === undefined) return all.flatMap((device) => (device.slices.length > 0 ? device.slices : [device]));
  const entries = variable.split(',').map((entry) => entry.trim());
  if (countsOverWholeNode(entries, all.length)) return [...all];
  const chosen = new Set<D>();
  for (const entry of entries) {
    const device = named(all, entry);
    if (!device) break;
    chosen.add(device);
  }
  return [...chosen];
}

function countsOverWholeNode(entries: readonly string[], count: number): boolean {
  const indices = new Set(entries.filter((entry) => /^\d+$/.test(entry)).map(Number));
  return indices.size === entries.length && indices.size === count && [...indices].some((index) => index >= count);
}

function named<D extends VisibleDevice<D>>(all: readonly D[], entry: string): D | undefined {
  if (/^\d+$/.test(entry)) {
    const device = all[Number(entry)];
    // A process sees one slice of a device in MIG mode: the first (CUDA C++ programming guide, "MIG mode").
    return device?.slices[0] ?? device;
  }
  if (/^(GPU|MIG)-/i.test(entry)) {
    const wanted = entry.toLowerCase();
    const candidates = all.flatMap((device) => [device, ...device.slices]);
    const matches = candidates.filter(({ uuid }) => uuid.toLowerCase().startsWith(wanted));
    const exact = matches.find(({ uuid }) => uuid.toLowerCase() === wanted);
    // A beginning that fits two devices names neither.
    const device = exact ?? (matches.length === 1 ? matches[0] : undefined);
    return device?.slices[0] ?? device;
  }
  return undefined;
}
