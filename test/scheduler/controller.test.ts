import { chmodSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeEach, describe, expect, it } from 'vitest';
import { applyCommand, type Outside } from '../../scheduler/cli/apply.ts';
import type { Io } from '../../scheduler/cli/io.ts';
import { watchCommand } from '../../scheduler/cli/watch.ts';
import { command, type JobState, type Launcher, slurmLauncher } from '../../scheduler/controller/launcher.ts';
import { EMPTY_STATE, readState } from '../../scheduler/controller/state.ts';
import { render } from '../../scheduler/controller/template.ts';
import { Triggers } from '../../scheduler/controller/triggers.ts';
import { SchedulerError } from '../../scheduler/errors.ts';
import { otelaPlan } from './support/small.ts';

const folder = mkdtempSync(join(tmpdir(), 'otela-plan-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/**
 * Stands in for a gateway: `/v1/registry/nodes` and `/admin/workload` as gateways answer them; `/admin/routing/{model}`, which no gateway has
 * yet, is only remembered.
 */
class StandInGateway {
  nodes: object[] = [];
  workload: object[] = [];
  weights: { path: string; body: unknown }[] = [];
  down = false;
  url = '';
  readonly #server: Server = createServer((request, response) => {
    const answer = (status: number, body: unknown) =>
      void response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
    if (this.down) return answer(503, { error: {} });
    if (request.headers.authorization !== 'Bearer operator-key') return answer(401, { error: {} });
    if (request.url === '/v1/registry/nodes') return answer(200, { object: 'list', data: this.nodes });
    if (request.url?.startsWith('/admin/workload?window=') === true)
      return answer(200, { object: 'list', data: this.workload });
    if (request.method === 'PUT' && request.url?.startsWith('/admin/routing/')) {
      let text = '';
      request.on('data', (chunk: Buffer) => (text += chunk.toString()));
      request.on('end', () => {
        this.weights.push({ path: request.url ?? '', body: JSON.parse(text) });
        answer(200, {});
      });
      return;
    }
    answer(404, {});
  });

  async open(): Promise<void> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve));
    const address = this.#server.address();
    this.url = `http://127.0.0.1:${typeof address === 'object' && address !== null ? address.port : 0}`;
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

const node = (session: string, changes: object = {}) => ({
  session,
  issuer: 'local',
  state: 'SERVING',
  suspected: false,
  provider: 'p',
  cluster: 'c',
  tier: 'volatile',
  labels: {},
  models: [] as object[],
  hardware: {
    gpus: Array.from({ length: 4 }, () => ({ class: 'A100', name: 'NVIDIA A100-SXM4-80GB', vram_mib: 81_920 })),
    cpus: 64,
    memory_mib: 1,
  },
  joined_at: '2026-01-01T00:00:00Z',
  updated_at: '2026-01-01T00:00:00Z',
  ...changes,
});
const serving = (session: string, model: string, job?: string) =>
  node(session, { models: [{ id: model, state: 'ready' }], ...(job === undefined ? {} : { job: { id: job } }) });

/** Slurm in memory. */
class Jobs implements Launcher {
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
const MODEL = 'meta-llama/Llama-2-13b-hf';
const lengths = (mean: number) => ({ mean, deviation: mean / 2, p50: mean, p95: 2 * mean });
const ROW = { model: MODEL, requests: 1200, requests_per_second: 2, input: lengths(500), output: lengths(100) };

describe('the controller', () => {
  const gateway = new StandInGateway();
  let jobs = new Jobs();
  let argv: string[] = [];
  let state = '';
  let round = 0;

  beforeEach(async () => {
    const here = mkdtempSync(join(folder, 'round-'));
    const write = (name: string, content: string) => {
      writeFileSync(join(here, name), content, { mode: 0o600 });
      return join(here, name);
    };
    Object.assign(gateway, { nodes: [], workload: [ROW], weights: [], down: false });
    if (round++ === 0) await gateway.open();
    jobs = new Jobs();
    state = join(here, 'state.json');
    const inventory = {
      pools: [{ id: 'a100', gpu: 'A100-80-SXM', nodes: 2, gpus_per_node: 4, values: { partition: 'gpu' } }],
    };
    argv = [
      '--gateway',
      gateway.url,
      '--key-file',
      write('key', 'operator-key\n'),
      '--inventory',
      write('inventory.json', JSON.stringify(inventory)),
    ];
    argv.push('--slurm', write('job.sbatch', TEMPLATE), '--state', state, '--objective', 'cost', '--gap', '0');
  });
  afterAll(() => gateway.close());

  async function apply(more: string[] = [], outside: Outside = {}): Promise<{ code: number; out: string }> {
    const lines: string[] = [];
    const io: Io = { out: (text) => void lines.push(text), log: (line) => void lines.push(line) };
    let code: number;
    try {
      code = await applyCommand([...argv, ...more], io, { launcher: jobs, ...outside });
    } catch (error) {
      if (!(error instanceof SchedulerError)) throw error;
      lines.push(error.message);
      code = -1;
    }
    return { code, out: lines.join('\n') };
  }

  it('changes nothing without --yes, and says what it would do', async () => {
    const { code, out } = await apply();
    expect(code).toBe(0);
    expect(out).toMatch(/would start meta-llama\/Llama-2-13b-hf TP \d on a100: the plan has \d+ of/);
    expect(out).toMatch(/dry run/);
    expect(jobs.scripts.size).toBe(0);
    expect(readState(state).jobs).toEqual([]);
  });

  it('submits what is missing from the template, once', async () => {
    await apply(['--yes']);
    const started = jobs.scripts.size;
    expect(started).toBeGreaterThan(0);
    expect([...jobs.scripts.values()][0]).toMatch(
      /--partition=gpu[\s\S]*vllm serve meta-llama\/Llama-2-13b-hf --tensor-parallel-size \d/,
    );
    expect(statSync(state).mode & 0o077).toBe(0);
    const { out } = await apply(['--yes']);
    expect(out).toMatch(/nothing to change/);
    expect(jobs.scripts.size).toBe(started);
  });

  it('starts more for more demand, and stops none for less unless told to', async () => {
    await apply(['--yes']);
    const few = jobs.alive.size;
    gateway.workload = [{ ...ROW, requests_per_second: 12 }];
    await apply(['--yes']);
    const many = jobs.alive.size;
    expect(many).toBeGreaterThan(few);
    gateway.workload = [{ ...ROW, requests_per_second: 1 }];
    await apply(['--yes']);
    expect(jobs.alive.size).toBe(many);
    const { out } = await apply(['--yes', '--reclaim']);
    expect(out).toMatch(/done: stop job/);
    expect(jobs.alive.size).toBeLessThan(many);
  });

  it("leaves others' nodes alone, counts on them and shows idle ones", async () => {
    gateway.nodes = [
      serving('aaaaaaaaaaaaaaaaaaaaaaaaaa', MODEL),
      node('bbbbbbbbbbbbbbbbbbbbbbbbbb'),
      serving('cccccccccccccccccccccccccc', 'somebody/elses-model'),
    ];
    const { out } = await apply(['--yes', '--reclaim']);
    expect(out).toMatch(/network: A100-80-SXM x4/);
    expect(out).toMatch(/idle: node bbbbbbbb/);
    expect(jobs.scripts.size).toBe(0);
    expect(jobs.stopped).toEqual([]);
  });

  it('goes back to what was wanted before, and stops everything of its own on request', async () => {
    await apply(['--yes']);
    const before = [...jobs.alive.keys()];
    gateway.workload = [{ ...ROW, requests_per_second: 12 }];
    await apply(['--yes']);
    expect(jobs.alive.size).toBeGreaterThan(before.length);
    await apply(['--yes', '--rollback']);
    expect([...jobs.alive.keys()].length).toBe(before.length);
    await apply(['--yes', '--stop']);
    expect(jobs.alive.size).toBe(0);
  });

  it('starts a job that died again, and gives up after three in a row until a person says --retry', async () => {
    await apply(['--yes']);
    for (let death = 0; death < 3; death++) {
      jobs.alive.clear();
      const { out } = await apply(['--yes']);
      expect(out).toMatch(/ended unasked/);
    }
    const { out } = await apply(['--yes']);
    expect(out).toMatch(/not started again without --retry/);
    const tried = jobs.scripts.size;
    await apply(['--yes', '--retry']);
    expect(jobs.scripts.size).toBeGreaterThan(tried);
  });

  it('a node that serves forgives the failures of its placement', async () => {
    await apply(['--yes']);
    jobs.alive.clear();
    await apply(['--yes']);
    expect(readState(state).failures.length).toBe(1);
    const [id] = [...jobs.alive.keys()];
    gateway.nodes = [serving('dddddddddddddddddddddddddd', MODEL, id)];
    await apply(['--yes']);
    expect(readState(state).failures).toEqual([]);
  });

  it('a Slurm that does not answer is no evidence that its jobs are gone', async () => {
    await apply(['--yes']);
    const known = readState(state).jobs;
    jobs.unknown = true;
    expect((await apply(['--yes'])).out).toMatch(/Unable to contact slurm/);
    expect(readState(state).jobs).toEqual(known);
  });

  it('reports a job that cannot be submitted and does the rest next time', async () => {
    jobs.failing = true;
    const { code, out } = await apply(['--yes']);
    expect(code).toBe(70);
    expect(out).toMatch(/FAILED: start .*QOSMaxSubmitJobPerUserLimit/);
    jobs.failing = false;
    await apply(['--yes']);
    expect(jobs.alive.size).toBeGreaterThan(0);
  });

  it('a controller that dies between two jobs remembers the first', async () => {
    gateway.workload = [{ ...ROW, requests_per_second: 12 }];
    const dying = new Jobs();
    const start = dying.start.bind(dying);
    dying.start = async (script) => {
      if (dying.scripts.size === 1) throw new TypeError('killed');
      return start(script);
    };
    await apply(['--yes'], { launcher: dying });
    expect(readState(state).jobs.length).toBe(1);
  });

  it('two controllers do not share a state', async () => {
    writeFileSync(`${state}.lock`, String(process.pid));
    expect((await apply(['--yes'])).out).toMatch(/another controller \(process \d+\)/);
    // The lock of one that is gone is no lock.
    writeFileSync(`${state}.lock`, '999999999');
    expect((await apply(['--yes'])).code).toBe(0);
  });

  it('a damaged state is an error, not an empty one', async () => {
    writeFileSync(state, '{"version":1,"jobs":[');
    expect((await apply(['--yes'])).out).toMatch(/damaged/);
    expect(jobs.scripts.size).toBe(0);
  });

  it('sends the weights of the sessions that serve', async () => {
    gateway.nodes = [serving('aaaaaaaaaaaaaaaaaaaaaaaaaa', MODEL), serving('bbbbbbbbbbbbbbbbbbbbbbbbbb', MODEL)];
    await apply(['--yes', '--weights']);
    expect(gateway.weights[0]?.path).toBe(`/admin/routing/${encodeURIComponent(MODEL)}`);
    expect(gateway.weights[0]?.body).toEqual({
      weights: [
        { session: 'aaaaaaaaaaaaaaaaaaaaaaaaaa', weight: 0.5 },
        { session: 'bbbbbbbbbbbbbbbbbbbbbbbbbb', weight: 0.5 },
        // Whoever comes after this is not left without requests.
        { weight: 0.5 },
      ],
    });
  });

  it.each<[string, () => void, RegExp]>([
    ['that is down', () => Object.assign(gateway, { down: true }), /answers 503/],
    ['that answers something else', () => Object.assign(gateway, { nodes: [{ session: 1 }] }), /does not understand/],
    [
      'whose load is no number',
      () => Object.assign(gateway, { workload: [{ ...ROW, requests_per_second: 'many' }] }),
      /does not understand/,
    ],
  ])('a gateway %s is an error and starts nothing', async (_, make, message) => {
    make();
    expect((await apply(['--yes'])).out).toMatch(message);
    expect(jobs.scripts.size).toBe(0);
  });

  it('a model that the catalogue does not know is left out, with its name', async () => {
    gateway.workload = [ROW, { ...ROW, model: 'who/knows' }];
    expect((await apply()).out).toMatch(/who\/knows is asked for but left out/);
  });

  it('plans from the live network without starting anything', async () => {
    gateway.nodes = [serving('aaaaaaaaaaaaaaaaaaaaaaaaaa', MODEL), node('bbbbbbbbbbbbbbbbbbbbbbbbbb')];
    const { code, out } = await otelaPlan('plan', '--live', ...argv.slice(0, 4), '--duration', '10');
    expect(code).toBe(0);
    expect(out).toMatch(/Llama-2-13b-hf +A100-80-SXM x4/);
  });

  it('a node with more GPUs than any has, and a thousand kinds of node, do not hold up the plan', async () => {
    const gpus = (count: number) => ({
      hardware: { gpus: [{ class: 'A100', vram_mib: 81_920, count }], cpus: 1, memory_mib: 1 },
    });
    const id = (n: number) => `a${n.toString(36).replace(/[0189]/g, 'z')}`.padEnd(26, 'b');
    gateway.nodes = [
      node('giant', gpus(1024)),
      ...Array.from({ length: 1000 }, (_, n) => node(id(n), gpus(n + 1))),
      serving('served', MODEL),
      serving('served-too', MODEL),
    ];
    gateway.nodes[0] = node('giant', {
      hardware: { gpus: [...gpus(1024).hardware.gpus, ...gpus(1024).hardware.gpus], cpus: 1, memory_mib: 1 },
    });
    const { code, log, out } = await otelaPlan(
      'plan',
      '--live',
      ...argv.slice(0, 4),
      '--duration',
      '0',
      '--objective',
      'throughput',
      '--time-limit',
      '5',
    );
    expect(log).toMatch(/claims 2048 GPUs: left out/);
    expect(log).toMatch(/rare kinds of node are left out/);
    expect([0, 4]).toContain(code);
    expect(out).toMatch(/Llama-2-13b-hf/);
  });

  it('a key that others may read is refused', async () => {
    const key = argv[3] ?? '';
    chmodSync(key, 0o644);
    expect((await apply()).out).toMatch(/chmod 600/);
  });

  describe('watching', () => {
    /** Runs `rounds` looks; `between` happens after each. */
    async function watch(rounds: number, between: (round: number) => void): Promise<string> {
      const lines: string[] = [];
      const io: Io = { out: (text) => void lines.push(text), log: (line) => void lines.push(line) };
      const over = new AbortController();
      let now = Date.parse('2026-01-01T00:00:00Z');
      let done = 0;
      const wait = async () => {
        between(++done);
        now += 60_000;
        if (done >= rounds) over.abort();
      };
      const code = await watchCommand([...argv, '--yes'], io, {
        launcher: jobs,
        now: () => now,
        signal: over.signal,
        wait,
      });
      expect(code).toBe(0);
      return lines.join('\n');
    }

    it('plans when a model has no replica, then leaves the plan alone, and starts a job that died again', async () => {
      let started = 0;
      const out = await watch(6, (at) => {
        if (at === 3) {
          started = jobs.scripts.size;
          jobs.alive.clear();
        }
      });
      expect(out.match(/plans again/g)?.length).toBe(2);
      expect(out).toMatch(/without a replica[\s\S]*ended unasked/);
      expect(jobs.scripts.size).toBe(2 * started);
    });

    it('plans when the load has been 20 % off for 10 minutes, not for a burst', async () => {
      const burst = await watch(8, (at) =>
        Object.assign(gateway, { workload: [{ ...ROW, requests_per_second: at === 3 ? 10 : 2 }] }),
      );
      expect(burst.match(/plans again/g)?.length).toBe(1);
      rmSync(state);
      jobs = new Jobs();
      const lasting = await watch(16, (at) =>
        Object.assign(gateway, { workload: [{ ...ROW, requests_per_second: at >= 2 ? 10 : 2 }] }),
      );
      expect(lasting).toMatch(/10\.0 requests\/s for 10 minutes, planned for 2\.00/);
    });

    it('without --yes starts nothing, writes nothing and says each thing once', async () => {
      const lines: string[] = [];
      const io: Io = { out: (text) => void lines.push(text), log: () => {} };
      let looks = 0;
      const over = new AbortController();
      const wait = async () => (++looks >= 5 ? over.abort() : undefined);
      await watchCommand(argv, io, { launcher: jobs, now: () => looks * 300_000, signal: over.signal, wait });
      expect(lines.join('\n').match(/plans again/g)?.length).toBe(1);
      expect(jobs.scripts.size).toBe(0);
      expect(readState(state)).toEqual(EMPTY_STATE);
    });

    it('goes on when the gateway is away, and everything runs on when it ends', async () => {
      const out = await watch(4, (at) => Object.assign(gateway, { down: at === 1 || at === 2 }));
      expect(out).toMatch(/answers 503; what runs goes on/);
      expect(jobs.alive.size).toBeGreaterThan(0);
      expect(jobs.stopped).toEqual([]);
    });
  });
});

describe('triggers', () => {
  it('an idle node is news once, and again when it comes back', () => {
    const triggers = new Triggers();
    const seen = (idle: string[]) => triggers.look({ idle, without: [], rates: {} }, {}, 0).length;
    expect([seen(['a']), seen(['a']), seen([]), seen(['a'])]).toEqual([1, 0, 0, 1]);
  });
});

describe('a template', () => {
  const values = { model: 'a/b', tp: '2', pool: 'p', gpu: 'H100', gateway: 'https://g' };

  it('is filled with what it names', () => {
    expect(render('#!/bin/sh\n{{ model }} {{tp}}', values)).toBe('#!/bin/sh\na/b 2');
  });

  it.each(['$(rm -rf ~)', 'a; reboot', 'a`id`', 'a\nb', '-flag', '', "a'b", 'a b'])(
    'never takes %j into a script',
    (model) => {
      expect(() => render('#!/bin/sh\n{{model}}', { ...values, model })).toThrow(/must not reach a shell/);
    },
  );

  it.each([
    ['#!/bin/sh\n{{modle}}', /names \{\{modle\}\}/],
    ['#!/bin/sh\n{{constructor}}', /names \{\{constructor\}\}/],
    ['echo {{model}}', /must begin with #!/],
  ])('that is wrong is refused: %j', (template, message) => {
    expect(() => render(template, values)).toThrow(message);
  });
});

describe('Slurm by its commands', () => {
  const bin = join(folder, 'bin');
  const path = process.env.PATH;
  afterEach(() => {
    process.env.PATH = path;
  });

  function commands(scripts: Record<string, string>): void {
    rmSync(bin, { recursive: true, force: true });
    const made = mkdtempSync(join(folder, 'bin-'));
    for (const [name, text] of Object.entries(scripts))
      writeFileSync(join(made, name), `#!/bin/sh\n${text}\n`, { mode: 0o755 });
    process.env.PATH = `${made}:${path}`;
  }

  it('reads the id that sbatch prints and hands the script over', async () => {
    const got = join(folder, 'script');
    commands({ sbatch: `cat > ${got}; echo "4711;cluster"` });
    expect(await slurmLauncher().start('#!/bin/sh\nhello\n', 'otela-x')).toBe('4711');
    expect(readFileSync(got, 'utf8')).toBe('#!/bin/sh\nhello\n');
  });

  it('knows waiting, running and gone', async () => {
    commands({ squeue: 'printf "1 PENDING\\n2 RUNNING\\n3 COMPLETED\\n9 RUNNING\\n"' });
    expect(Object.fromEntries(await slurmLauncher().states(['1', '2', '3', '4']))).toEqual({
      1: 'waiting',
      2: 'running',
      3: 'gone',
      4: 'gone',
    });
  });

  it('a command that fails or is not there is an error with its words', async () => {
    commands({ squeue: 'echo "slurm_load_jobs error" >&2; exit 1' });
    await expect(slurmLauncher().states(['1'])).rejects.toThrow(/slurm_load_jobs error/);
    await expect(command('no-such-command-here', [])).rejects.toThrow(/ENOENT/);
    commands({ sbatch: 'echo Submitted' });
    await expect(slurmLauncher().start('#!/bin/sh\n', 'x')).rejects.toThrow(/no job id/);
  });
});
