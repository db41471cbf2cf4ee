/** Jobs of an ordinary user in a Slurm, each with an agent, in addition to a replica outside Slurm. */
import * as z from 'zod';
import { errorText } from '../../shared/text/error-text.ts';
import type { RegisteredNode } from '../support/gateway.ts';
import { stream } from '../support/load.ts';
import { eventually } from '../support/processes.ts';
import { MODEL, type TestCluster } from '../support/test-cluster.ts';
import type { Cluster, Job } from './cluster.ts';
import { openPlace } from './place.ts';

/** Only the job's engine serves it; a second replica outside Slurm serves MODEL as well. */
const ONLY = 'stand-in/in-the-job';

/** A job that preempts one in a partition of lower priority. */
export const PREEMPTING = { sbatch: ['--partition=normal', '-w n3', '--gres=gpu:h100:2'], script: 'sleep 12' };

const historySchema = z.object({ data: z.array(z.looseObject({ event: z.string(), cause: z.string().nullable() })) });

export class Jobs {
  readonly house: TestCluster;
  readonly cluster: Cluster;
  token: string;

  private constructor(house: TestCluster, cluster: Cluster, token: string) {
    this.house = house;
    this.cluster = cluster;
    this.token = token;
  }

  static async open(): Promise<Jobs> {
    const { house, cluster, token } = await openPlace();
    return new Jobs(house, cluster, token);
  }

  /** The line of a job's script that starts the agent. */
  line(how: string, flags = '', engineFlags = '') {
    const { gateway } = this.house;
    return this.cluster.agentLine(how, gateway.url, this.token, MODEL, flags, `--model ${ONLY} ${engineFlags}`);
  }

  /** The node of a job. @throws Error with the job's output if there is none */
  async nodeOf(job: Job, withinMs = 30_000, not?: string): Promise<RegisteredNode> {
    try {
      return await eventually(`job ${job.id} serves`, withinMs, async () =>
        (await this.house.gateway.nodes()).find(
          (node) => node.job?.id === job.id && node.state === 'SERVING' && !node.suspected && node.session !== not,
        ),
      );
    } catch (cause) {
      throw new Error(`${errorText(cause)}\n--- the job:\n${await job.output()}`, {
        cause,
      });
    }
  }

  /** The reason in the registry for which the node left. */
  async causeOf(session: string): Promise<string | null> {
    return eventually(`${session} has left`, 20_000, async () => {
      const told = await this.house.gateway.admin('GET', `nodes/history?event=left&session=${session}`);
      return historySchema.parse(told).data[0]?.cause ?? undefined;
    });
  }

  async notRouted(session: string, withinMs: number): Promise<void> {
    await eventually(`${session} is out of routing`, withinMs, async () => {
      const node = (await this.house.gateway.nodes()).find((known) => known.session === session);
      return node === undefined || node.state !== 'SERVING' || node.suspected ? true : undefined;
    });
  }

  /** Reads a slow stream from the job: `only` is served nowhere else. */
  async streamFromJob(tokens: number) {
    let words = 0;
    const result = stream(this.house, { tokens, tokensPerSecond: 20 }, { model: ONLY }, (n) => {
      words = n;
    });
    await Promise.race([
      eventually('the stream flows', 15_000, () => (words > 5 ? true : undefined)),
      result.then((early) => {
        throw new Error(`the stream ended early: ${JSON.stringify(early)}`);
      }),
    ]);
    return { result };
  }
}
