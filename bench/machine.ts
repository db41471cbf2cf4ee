/** The machine on which the figures were measured. */
import { readFileSync } from 'node:fs';
import { arch, cpus, loadavg, release, totalmem } from 'node:os';

export interface Machine {
  cpu: string;
  cores: number;
  memory_mib: number;
  kernel: string;
  node: string;
  /** Load average of the minute before the run. Well above 0, the machine has other work. */
  load: number;
  /**
   * Fraction of the demanded processor time during the run that the virtual machine's host gave to others; 0 on
   * physical hardware.
   */
  stolen: number;
  /** Start of the run. */
  date: string;
}

/**
 * Begins to watch the machine. The returned function gives its description at that time, and the processor time stolen
 * since.
 */
export function watchMachine(): () => Machine {
  const start = {
    cpu: `${cpus()[0]?.model ?? 'unknown'} (${arch()})`,
    cores: cpus().length,
    memory_mib: Math.round(totalmem() / 1024 / 1024),
    kernel: release(),
    node: process.version,
    load: loadavg()[0] ?? 0,
    date: new Date().toISOString(),
  };
  const before = processorTime();
  return () => {
    const after = processorTime();
    const stolen = after.stolen - before.stolen;
    const wanted = after.ran - before.ran + stolen;
    return { ...start, stolen: wanted > 0 ? stolen / wanted : 0 };
  };
}

/** Begins to watch the cores. The returned function gives the fraction of the time since in which they were busy. */
export function watchCores(): () => number {
  const before = processorTime();
  return () => {
    const after = processorTime();
    const busy = after.ran + after.stolen - before.ran - before.stolen;
    return busy / (busy + after.idle - before.idle);
  };
}

/** Describes the machine for the readers of a table. */
export function aboutMachine({ cpu, cores, kernel, node, load, stolen }: Machine): string {
  return `${cpu}, ${cores} cores, Linux ${kernel}, Node ${node}, load before ${load.toFixed(2)}, stolen by the host ${(stolen * 100).toFixed(0)} %`;
}

/**
 * Processor time of all cores since boot, in ticks. Columns of /proc/stat, see proc(5): user nice system idle iowait
 * irq softirq steal.
 */
function processorTime(): { ran: number; idle: number; stolen: number } {
  const [all = ''] = readFileSync('/proc/stat', 'utf8').split('\n');
  const [user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0, stolen = 0] = all
    .split(/\s+/)
    .slice(1)
    .map(Number);
  return { ran: user + nice + system + irq + softirq, idle: idle + iowait, stolen };
}
