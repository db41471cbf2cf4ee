/** Selects the devices that this process may use, by the variables that CUDA, HIP and ROCm read. Pure. */

export interface VisibleDevice<D> {
  /** For example `GPU-…` or `MIG-…`; empty if the tool does not print it. */
  uuid: string;
  /** MIG slices of this device, in the driver's order. */
  slices: readonly D[];
}

/**
 * Applies `variable` with CUDA's semantics: an unset variable means all devices. An index, a UUID or the beginning of a
 * UUID names a device. The order is kept. The first entry that matches no device ends the list, so `-1`, `NoDevFiles`
 * and the empty string mean no devices.
 *
 * One exception: if Slurm confines devices by cgroup (or a container shows only some), the tool lists only the job's
 * devices and counts them from 0. A variable that was set outside may still count over the whole machine (`2,3` with
 * two devices). If there are as many indices as devices, and an index is beyond the last device, the variable means all
 * of these devices.
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
    // In MIG mode a process sees only the first slice of a device (CUDA C++ programming guide, "MIG mode").
    return device?.slices[0] ?? device;
  }
  if (/^(GPU|MIG)-/i.test(entry)) {
    const wanted = entry.toLowerCase();
    const candidates = all.flatMap((device) => [device, ...device.slices]);
    const matches = candidates.filter(({ uuid }) => uuid.toLowerCase().startsWith(wanted));
    const exact = matches.find(({ uuid }) => uuid.toLowerCase() === wanted);
    // A beginning that matches two devices names neither of them.
    const device = exact ?? (matches.length === 1 ? matches[0] : undefined);
    return device?.slices[0] ?? device;
  }
  return undefined;
}
