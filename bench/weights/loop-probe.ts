/**
 * Loaded into an agent by `NODE_OPTIONS=--import`. Each connection to the socket named by OTELA_LOOP_PROBE receives
 * what the agent's event loop did since the previous connection, in ms. `delay`: from when a timer was due until it
 * ran. `work`: the main thread's processor time between two timer checks, so what this thread alone kept a token
 * waiting; other work on the machine does not change it.
 */
import { createServer } from 'node:net';
import { createHistogram, type Histogram, monitorEventLoopDelay } from 'node:perf_hooks';

/** The monitor's timer; shorter delays do not show. */
const RESOLUTION_MS = 1;

const path = process.env.OTELA_LOOP_PROBE;
// The commands that the agent runs inherit both variables.
if (path !== undefined && process.argv[2] === 'start') {
  const delay = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
  delay.enable();
  const work = createHistogram();
  let before = process.threadCpuUsage();
  setInterval(() => {
    const { user, system } = process.threadCpuUsage(before);
    before = process.threadCpuUsage();
    work.record(Math.max(1, user + system));
  }, RESOLUTION_MS).unref();
  createServer((socket) => {
    const told = (of: Histogram, perMs: number) => {
      const ms = (value: number) => Number((value / perMs).toFixed(2));
      return { p50: ms(of.percentile(50)), p99: ms(of.percentile(99)), max: ms(of.max) };
    };
    socket.end(JSON.stringify({ delay: told(delay, 1e6), work: told(work, 1e3) }));
    delay.reset();
    work.reset();
  })
    .listen(path)
    .unref();
}
