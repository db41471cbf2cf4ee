/** Requirements that compare the gateway with other routers, with itself while weights are sent, and with clear requests. */
import { errorText } from '../../shared/text/error-text.ts';
import { endAll } from '../../test/support/processes.ts';
import { startEngine, warm } from '../bench-cluster.ts';
import { ours } from '../peers/ours.ts';
import { vllmRouter } from '../peers/python-peers.ts';
import { between, openSealCluster, PROCESSES, sealedRequests } from '../seal-cluster.ts';
import { wrk } from '../sections/throughput.ts';
import { median } from '../stats.ts';
import { tokensWhileSending } from '../weights/tokens-while-sending.ts';
import type { Required } from './row.ts';
import type { Plan } from './side-by-side.ts';

const CONNECTIONS = 64;
const ROUTER_LEAST = 0.5;
const BIFROST_LEAST = 1;
const WEIGHTS_MOST = 1.15;
const SEALED_MOST_MS = 0.3;
const MS_PER_S = 1_000;

const router = (name: string, least: number): Required => ({
  figure: `requests per second at ${CONNECTIONS} connections ÷ ${name}`,
  unit: '/s',
  of: 'ratio',
  least,
});

/** Alternates ours and vllm-router, both with what they have: it checks no key, and has no tunnel. */
async function besideVllmRouter({ rounds, seconds }: Plan): Promise<Required> {
  const row = router('vllm-router’s', ROUTER_LEAST);
  try {
    await vllmRouter.install();
    const { url } = await startEngine();
    const sides = [await ours.start(url), await vllmRouter.start(url)];
    for (const side of sides) await warm(side, 2_000);
    const seen: number[][] = [[], []];
    for (let n = 0; n < rounds; n++)
      for (const [at, side] of sides.entries()) seen[at]?.push((await wrk(side, CONNECTIONS, seconds)).perSecond);
    const [own = [], other = []] = seen;
    const ratio = median(own.map((value, n) => value / (other[n] ?? Number.NaN)));
    return { ...row, ours: median(own), ratio, note: `vllm-router: ${median(other).toFixed(0)} /s` };
  } catch (error) {
    return { ...row, note: `not measured: ${errorText(error)}` };
  } finally {
    await endAll();
  }
}

export async function besideRouters(plan: Plan): Promise<Required[]> {
  const note = 'not measured: no registry has its program';
  return [await besideVllmRouter(plan), { ...router('Bifrost’s', BIFROST_LEAST), note }];
}

export async function tokensBesideWeights(quick: boolean): Promise<Required> {
  const plan = quick ? { mib: 32, rounds: 1, seconds: 2 } : { mib: 512, rounds: 3, seconds: 8 };
  const { quiet, sending, mib_s } = await tokensWhileSending(plan);
  return {
    figure: `p99 between two tokens while the node sends weights (${mib_s} MiB/s) ÷ without`,
    ours: sending.p99_ms / quiet.p99_ms,
    unit: '×',
    of: 'ours',
    most: WEIGHTS_MOST,
    cause: `sender, reader and client share the cores: the agent's thread runs ${sending.thread_ms_per_s.ran} ms a second instead of ${quiet.thread_ms_per_s.ran}, and waits ${sending.thread_ms_per_s.waited} ms for a core instead of ${quiet.thread_ms_per_s.waited}`,
  };
}

export async function sealedCpu(quick: boolean): Promise<Required> {
  const { clear, sealed } = await sealedRequests(await openSealCluster(), quick ? 20 : 400);
  return {
    figure: 'processor time of gateway and agent, sealed request − clear',
    ours: (between(sealed) - between(clear)) * MS_PER_S,
    unit: 'ms',
    of: 'ours',
    most: SEALED_MOST_MS,
    cause: PROCESSES.map((name) => `${name} ${((sealed.cpu[name] - clear.cpu[name]) * MS_PER_S).toFixed(2)} ms`).join(
      ', ',
    ),
  };
}
