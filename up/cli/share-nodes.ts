/** `otela share --gateway --nodes`: the nodes of the jobs join an institution's gateway. */
import { setTimeout as delay } from 'node:timers/promises';
import { readPrivateFile } from '../../node/private-file.ts';
import type { Output } from '../../shared/terminal/command-output.ts';
import { connectHost } from '../host/connect-host.ts';
import { listJobs } from '../job/end-jobs.ts';
import { endNodeOffer, joinedNodes, offerNodes } from '../job/node-offer.ts';
import { type Run, Runs } from '../state/runs.ts';
import { stateDirectory } from '../state/state-directory.ts';
import { UpError } from '../up-error.ts';

/** How long a node may need: a job looks for an offer every two seconds, and its agent must reach the gateway. */
const JOIN_MS = 90_000;
const ASK_MS = 2_000;

interface Offering {
  to: string;
  tokenFile: string;
  endsAt: Date;
  /** True to end the offer. */
  ends: boolean;
}

/** @throws UpError */
export async function offerByNodes(offer: Offering, out: Output): Promise<void> {
  const runs = new Runs(stateDirectory()).list().filter(({ job }) => job !== undefined);
  if (runs.length === 0) throw new UpError('No model is up.', 'Start one: otela up MODEL --host me@login.example.org');
  const token = offer.ends ? '' : readPrivateFile(offer.tokenFile).trim();
  let failures = 0;
  for (const run of runs)
    if (offer.ends) {
      await endNodeOffer(await connectHost(run), run);
      out.print(`The nodes of ${run.model} on ${run.host} leave ${offer.to}.`);
    } else
      await offerRun(run, { ...offer, token }, out).catch((error: unknown) => {
        if (!(error instanceof UpError)) throw error;
        failures += 1;
        out.complain(error.message);
      });
  if (failures > 0) throw new UpError(`Nodes of ${failures} of ${runs.length} models did not join.`, 'See above.');
}

async function offerRun(run: Run, offer: Offering & { token: string }, out: Output): Promise<void> {
  const host = await connectHost(run);
  const jobs = (await listJobs(host, run)).flatMap(({ id, state }) => (state === 'running' ? [id] : []));
  await offerNodes(host, run, { ...offer, jobs });
  for (const until = performance.now() + JOIN_MS; ; await delay(ASK_MS)) {
    const joined = await joinedNodes(host, run);
    if (joined.length > 0) {
      const names = joined.join(', ');
      out.print(
        `${run.model} on ${run.host} is at ${offer.to} as node ${names}, until ${offer.endsAt.toISOString()} or the end of its jobs. The same command with --revoke ends this.`,
      );
      return;
    }
    if (performance.now() < until) continue;
    await endNodeOffer(host, run);
    throw new UpError(
      `The node of ${run.model} on ${run.host} did not join ${offer.to} within ${JOIN_MS / 1_000} s.`,
      'If compute nodes have no way to it, omit --nodes: then the models join through this machine. Jobs of an earlier version of otela up do not look for offers.',
    );
  }
}
