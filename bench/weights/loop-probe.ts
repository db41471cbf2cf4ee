/**
 * Loaded into an agent by `NODE_OPTIONS=--import`: each connection to the socket named by OTELA_LOOP_PROBE gets the delay of the agent's event
 * loop since the connection before, in ms. The commands that the agent runs inherit both variables and open no socket.
 */
import { createServer } from 'node:net';
import { monitorEventLoopDelay } from 'node:perf_hooks';

const NS_PER_MS = 1e6;
/** The monitor's timer: what is shorter does not show. */
const RESOLUTION_MS = 1;

const path = process.env.OTELA_LOOP_PROBE;
if (path !== undefined && process.argv[2] === 'start') {
  const delay = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
  delay.enable();
  createServer((socket) => {
    const ms = (ns: number) => Number((ns / NS_PER_MS).toFixed(1));
    const { max } = delay;
    socket.end(JSON.stringify({ p50: ms(delay.percentile(50)), p99: ms(delay.percentile(99)), max: ms(max) }));
    delay.reset();
  })
    .listen(path)
    .unref();
}
