import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { JobState, Launcher } from '../../../scheduler/controller/launcher.ts';
import { SchedulerError } from '../../../scheduler/errors.ts';
import { StandInGateway } from './stand-in-gateway.ts';

/** Slurm in memory. */
export class Jobs implements Launcher {
  readonly scripts = new Map<string, string>();
  readonly alive = new Map<string, JobState>();
  readonly stopped: string[] = [];
  failing = false;
  unknown = false;
  async start(script: string): Promise<string> {
    if (this.failing) throw new SchedulerError('launcher', 'sbatch failed (1): QOSMaxSubmitJobPerUserLimit');
    const id = String(1000 + this.scripts.size);
    this.scripts.set(id, script);
    this.alive.set(id, 'running');
    return id;
  }
  async states(ids: readonly string[]): Promise<Map<string, JobState>> {
    if (this.unknown) throw new SchedulerError('launcher', 'squeue failed (1): Unable to contact slurm controller');
    return new Map(ids.map((id) => [id, this.alive.get(id) ?? 'gone']));
  }
  async stop(ids: readonly string[]): Promise<void> {
    for (const id of ids) {
      this.alive.delete(id);
      this.stopped.push(id);
    }
  }
}

const TEMPLATE =
  '#!/bin/bash\n#SBATCH --partition={{partition}} --gres=gpu:{{tp}}\nexec otela-agent start --gateway {{gateway}} -- vllm serve {{model}} --tensor-parallel-size {{tp}}\n';
export const MODEL = 'meta-llama/Llama-2-13b-hf';
const lengths = (mean: number) => ({ mean, deviation: mean / 2, p50: mean, p95: 2 * mean });
/** A row of `/admin/workload`. */
export const ROW = { model: MODEL, requests: 1200, requests_per_second: 2, input: lengths(500), output: lengths(100) };

/** What a controller looks at and acts on: a gateway, Slurm, and its files in a folder that is new for each test. */
export class Workplace {
  readonly gateway = new StandInGateway();
  jobs = new Jobs();
  /** Flags of `otela-plan apply` and `watch`: the gateway and its key first, four words. */
  argv: string[] = [];
  /** Path of the controller's state; no file yet. */
  state = '';
  #folder = '';

  async open(): Promise<void> {
    this.#folder = mkdtempSync(join(tmpdir(), 'otela-plan-'));
    await this.gateway.open();
  }

  renew(): void {
    const here = mkdtempSync(join(this.#folder, 'test-'));
    const write = (name: string, content: string) => {
      writeFileSync(join(here, name), content, { mode: 0o600 });
      return join(here, name);
    };
    Object.assign(this.gateway, { nodes: [], workload: [ROW], windowMs: undefined, weights: [], down: false });
    this.jobs = new Jobs();
    this.state = join(here, 'state.json');
    const pools = [{ id: 'a100', gpu: 'A100-80-SXM', nodes: 2, gpus_per_node: 4, values: { partition: 'gpu' } }];
    this.argv = ['--gateway', this.gateway.url, '--key-file', write('key', 'operator-key\n')];
    this.argv.push('--inventory', write('inventory.json', JSON.stringify({ pools })));
    this.argv.push('--slurm', write('job.sbatch', TEMPLATE), '--state', this.state);
    this.argv.push('--objective', 'cost', '--gap', '0');
  }

  async close(): Promise<void> {
    await this.gateway.close();
    rmSync(this.#folder, { recursive: true, force: true });
  }
}
