/** What the numbers were taken on; without it they say nothing. */
import { readFileSync } from 'node:fs';
import { arch, cpus, loadavg, release, totalmem } from 'node:os';

export interface Machine {
  cpu: string;
  cores: number;
  memory_mib: number;
  kernel: string;
  node: string;
  /** Of the last minute, before the run: much above 0 means that others were at work. */
  load: number;
  /** Of the processor time that was wanted during the run, the part that the machine's own host gave to others; 0 on one's own hardware. */
  stolen: number;
  /** Of the start of the run. */
  date: string;
}

/** Watches from now on; what it gives at the end of a run is the machine at its start, and what was stolen of it meanwhile. */
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

/** For a reader of the run's table. */
export function aboutMachine({ cpu, cores, kernel, node, load, stolen }: Machine): string {
  return `${cpu}, ${cores} cores, Linux ${kernel}, Node ${node}, load before ${load.toFixed(2)}, stolen by the host ${(stolen * 100).toFixed(0)} %`;
}

/** Of all cores since they were started, in ticks; proc(5): user nice system idle iowait irq softirq steal. */
function processorTime(): { ran: number; stolen: number } {
  const [all = ''] = readFileSync('/proc/stat', 'utf8').split('\n');
  const [user = 0, nice = 0, system = 0, , , irq = 0, softirq = 0, stolen = 0] = all.split(/\s+/).slice(1).map(Number);
  return { ran: user + nice + system + irq + softirq, stolen };
}
