import { createServer } from 'node:http';
import { createServer as createTcpServer, type Socket } from 'node:net';
import { PassThrough } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { describe, expect, it, onTestFinished } from 'vitest';
import { applyFacts, commandFacts, parseFact } from '../../../agent/engine/declared-model-facts.ts';
import { Engine } from '../../../agent/engine/engine.ts';
import { parseEngineTarget } from '../../../agent/engine/engine-address.ts';
import { shellWrapped } from '../../../agent/engine/engine-command.ts';
import { type EngineHealth, nextHealth, UNKNOWN_HEALTH } from '../../../agent/engine/engine-health.ts';
import { EngineProbe, type EngineProbeResult } from '../../../agent/engine/engine-probe.ts';
import { EngineProcess } from '../../../agent/engine/engine-process.ts';
import { EngineWatch } from '../../../agent/engine/engine-watch.ts';
import { LogTailBuffer } from '../../../agent/engine/log-tail-buffer.ts';
import { engineSpan } from '../../../agent/engine/multi-machine-engine.ts';
import { startEngine } from '../../support/engine.ts';

const words = (line: string) => line.split(' ');

describe('the engine’s address', () => {
  it.each([
    ['vllm serve NAME', 'http://127.0.0.1:8000'],
    ['vllm serve NAME --port 8123', 'http://127.0.0.1:8123'],
    ['vllm serve NAME --port=8123 --port 9', 'http://127.0.0.1:9'],
    ['/opt/venv/bin/vllm serve NAME --host 0.0.0.0', 'http://127.0.0.1:8000'],
    ['vllm serve NAME --host 10.1.2.3', 'http://10.1.2.3:8000'],
    ['vllm serve NAME --host ::', 'http://[::1]:8000'],
    ['vllm serve NAME --host $HOST', 'http://127.0.0.1:8000'],
    ['python3 -m vllm.entrypoints.openai.api_server --model NAME', 'http://127.0.0.1:8000'],
    ['python -m sglang.launch_server --model-path NAME', 'http://127.0.0.1:30000'],
    ['apptainer exec --nv vllm.sif vllm serve NAME --port 8001', 'http://127.0.0.1:8001'],
    ['llama-server -m model.gguf', 'http://127.0.0.1:8080'],
    ['/opt/llama/llama-server -m model.gguf --port 8081', 'http://127.0.0.1:8081'],
    ['ollama serve', 'http://127.0.0.1:11434'],
    ['text-generation-launcher --model-id NAME --hostname 10.1.2.3 -p 3001', 'http://10.1.2.3:3001'],
    ['lmdeploy serve api_server NAME --server-name 0.0.0.0', 'http://127.0.0.1:23333'],
    ['lmdeploy serve api_server NAME --server-port 8001', 'http://127.0.0.1:8001'],
    ['trtllm-serve NAME', 'http://127.0.0.1:8000'],
    ['transformers serve --port 8001', 'http://127.0.0.1:8001'],
    ['my-server --port 8002', 'http://127.0.0.1:8002'],
  ])('is told by its command: %s', (command, origin) => {
    expect(parseEngineTarget({ command: words(command) })?.origin).toBe(origin);
  });

  it('is found in a line for the shell', () => {
    const command = ['module load cuda && exec vllm serve NAME --port "8123"'];
    expect(parseEngineTarget({ command })?.origin).toBe('http://127.0.0.1:8123');
  });

  it('loses the /v1 that clients’ addresses end with', () => {
    expect(parseEngineTarget({ url: 'http://h:1/llm/v1/' })).toEqual({ origin: 'http://h:1', pathPrefix: '/llm' });
    expect(parseEngineTarget({ url: 'https://h' })).toEqual({ origin: 'https://h', pathPrefix: '' });
  });

  it.each([
    [{ models: Array.from({ length: 65 }, (_, n) => `m${n}`) }, 'at most 64'],
    [{ models: [''] }, 'not a valid name of a model'],
    [{ healthPath: 'health' }, 'not a path'],
    [{ healthPath: '/a b' }, 'not a path'],
    [{ metricsPath: '/m\r\nX: y' }, 'not a path'],
    [{ metricsPath: '/m#x' }, 'not a path'],
  ])('refuses %j', (hints, message) => {
    expect(() => parseEngineTarget({ url: 'http://h:1', ...hints })).toThrow(message);
  });

  it('is absent without command, port and address', () => {
    expect(parseEngineTarget({})).toBeUndefined();
  });
});

describe('an engine without /v1/models', () => {
  async function probed(statusOf: (path: string) => number, more: Parameters<typeof parseEngineTarget>[0] = {}) {
    const server = createServer(({ url = '' }, response) => response.writeHead(statusOf(url)).end());
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    onTestFinished(() => void server.close());
    const { port } = server.address() as { port: number };
    const target = parseEngineTarget({ url: `http://127.0.0.1:${port}`, models: ['whisper'], ...more });
    if (target === undefined) throw new Error('no target');
    const probe = new EngineProbe(target);
    onTestFinished(() => probe.close());
    return probe.look();
  }
  const ready = { kind: 'models', models: [{ id: 'whisper', state: 'ready' }], unnameable: 0 };
  const health = (status: number) => (path: string) => (path === '/health' ? status : 418);

  it.each([
    [200, ready],
    [404, ready],
    [503, { kind: 'loading', models: [{ id: 'whisper', state: 'loading' }] }],
    [401, { kind: 'unknown', reason: expect.stringContaining('--engine-key-file') }],
    [500, { kind: 'unknown', reason: expect.stringContaining('500') }],
    [302, { kind: 'unknown', reason: expect.stringContaining('302') }],
  ])('has its stated models as its health page says: %i', async (status, result) => {
    expect(await probed(health(status))).toEqual(result);
  });

  it('is asked at the given path', async () => {
    const result = await probed((path) => (path === '/v2/ready' ? 200 : 500), { healthPath: '/v2/ready' });
    expect(result).toEqual(ready);
  });

  it('has no models if nothing listens', async () => {
    const probe = new EngineProbe({ origin: 'http://127.0.0.1:1', pathPrefix: '', models: ['whisper'] });
    onTestFinished(() => probe.close());
    expect(await probe.look()).toEqual({ kind: 'refused' });
  });
});

describe('a command', () => {
  it.each([
    ['exec env # apptainer exec x.sif python3 -m sglang.launch_server', {}, '1'],
    ['exec env # sglang serve', { SGLANG_REQUEST_STATE_WAIT_TIMEOUT: '3' }, '3'],
    ['exec env # vllm serve', {}, undefined],
  ])(
    'of SGLang looks every second for clients that left, unless its user has said otherwise: %s',
    async (line, own, seen) => {
      const quiet = () => new PassThrough().resume();
      const env = { PATH: process.env.PATH, ...own };
      const child = new EngineProcess({
        command: shellWrapped([line]),
        env,
        stdout: quiet(),
        stderr: quiet(),
        log: () => {},
      });
      await child.exited;
      expect(/^SGLANG_REQUEST_STATE_WAIT_TIMEOUT=(.*)$/m.exec(child.tail.bytes().toString())?.[1]).toBe(seen);
      await child.stop(0, Promise.resolve());
    },
  );

  it('of one argument with spaces is a line for a shell, any other is left as it is', () => {
    expect(shellWrapped(['a b'])).toEqual(['sh', '-c', 'a b']);
    expect(shellWrapped(['a', 'b c'])).toEqual(['a', 'b c']);
    expect(shellWrapped(['a'])).toEqual(['a']);
  });
});

describe('an engine over several nodes', () => {
  const step = { SLURM_STEP_NUM_NODES: '2', SLURM_JOB_NUM_NODES: '4' };
  it.each([
    ['vllm serve N', {}, 'register', 1],
    ['vllm serve N', step, 'register', 1],
    ['vllm serve N --nnodes 2 --node-rank 0', step, 'register', 2],
    ['vllm serve N --nnodes 2 --node-rank 1 --headless', step, 'supervise', 2],
    ['python -m sglang.launch_server --nnodes=4 --node-rank=3', step, 'supervise', 4],
    ['vllm serve N --data-parallel-size 4 --data-parallel-start-rank 2 --headless', step, 'supervise', 2],
    ['ray start --address=n1:6379 --block', step, 'supervise', 2],
    ['vllm serve N --distributed-executor-backend ray', step, 'register', 2],
    ['vllm serve N --distributed-executor-backend=ray', {}, 'register', 1],
  ])('%s', (command, env, role, nodes) => {
    expect(engineSpan(words(command), env, false)).toMatchObject({ role, nodes });
  });

  it('takes the rank from Slurm with --span-nodes', () => {
    expect(engineSpan(['x'], { ...step, SLURM_PROCID: '0' }, true)).toMatchObject({ role: 'register', nodes: 2 });
    expect(engineSpan(['x'], { ...step, SLURM_PROCID: '1' }, true)).toMatchObject({ role: 'supervise', nodes: 2 });
    expect(engineSpan(['x'], {}, true)).toMatchObject({ role: 'register', nodes: 1 });
  });
});

describe('the tail of the output', () => {
  it('keeps the last bytes and no more', () => {
    const tail = new LogTailBuffer(1000);
    for (let i = 0; i < 5000; i++) tail.push(Buffer.from(`${i}\n`));
    const text = tail.bytes().toString();
    expect(text.length).toBe(1000);
    expect(text.endsWith('4998\n4999\n')).toBe(true);
    tail.push(Buffer.alloc(1_000_000, 'x'));
    expect(tail.bytes().length).toBe(1000);
  });

  it('shows lines without colors, control characters and the past of a progress bar', () => {
    const tail = new LogTailBuffer();
    tail.push(Buffer.from('\u001b[31mred\u001b[0m\u0007\nLoading:  10%\rLoading: 100%\r\n\n\u001b]0;title'));
    expect(tail.lines(3)).toEqual(['red', 'Loading: 100%', ']0;title']);
  });
});

describe('health', () => {
  const models = [{ id: 'm', state: 'ready' as const }];
  const believed = (...sightings: Parameters<typeof nextHealth>[1][]) =>
    sightings.reduce<EngineHealth>(nextHealth, UNKNOWN_HEALTH);

  it('is nothing while it has never answered', () => {
    expect(believed({ kind: 'refused' }, { kind: 'refused' }, { kind: 'refused' })).toMatchObject({
      everReady: false,
      answering: false,
      models: [],
    });
  });

  it('survives any number of looks that show nothing: unknown is not gone', () => {
    const unknown = { kind: 'unknown' as const, reason: 'time-out' };
    expect(believed({ kind: 'models', models, unnameable: 0 }, unknown, unknown, unknown, unknown)).toMatchObject({
      answering: true,
      models,
    });
  });

  it('is loading, and not lost, while the engine lists what it does not serve yet', () => {
    const loading = { kind: 'loading' as const, models: [{ id: 'm', state: 'loading' as const }] };
    expect(believed(loading)).toMatchObject({ everReady: false, answering: false, models: loading.models });
    const again = believed({ kind: 'models', models, unnameable: 0 }, loading);
    expect(again).toMatchObject({ everReady: true, answering: false, models: loading.models });
  });

  it('survives one refused connection, not two in a row', () => {
    const ready = { kind: 'models' as const, models, unnameable: 0 };
    expect(believed(ready, { kind: 'refused' })).toMatchObject({ answering: true, models });
    expect(believed(ready, { kind: 'refused' }, { kind: 'unknown', reason: '' }, { kind: 'refused' })).toMatchObject({
      answering: true,
    });
    const lost = believed(ready, { kind: 'refused' }, { kind: 'refused' });
    expect(lost).toMatchObject({ answering: false, models: [{ id: 'm', state: 'loading' }] });
  });
});

describe('a look at /v1/models', () => {
  async function look(status: number, body: string) {
    const server = createServer((_req, res) => res.writeHead(status).end(body));
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const address = server.address();
    const port = typeof address === 'object' && address ? address.port : 0;
    const probe = new EngineProbe({ origin: `http://127.0.0.1:${port}`, pathPrefix: '' });
    onTestFinished(async () => {
      await probe.close();
      server.close();
    });
    return probe.look();
  }

  it('reads several models and their context lengths', async () => {
    const data = [
      { id: 'a', max_model_len: 4096, owned_by: 'vllm' },
      { id: 'b', context_length: 8192 },
      { id: 'c', max_model_len: null },
      { id: 'a', max_model_len: 1 },
    ];
    expect(await look(200, JSON.stringify({ object: 'list', data }))).toEqual({
      kind: 'models',
      models: [
        { id: 'a', state: 'ready', context_length: 1 },
        { id: 'b', state: 'ready', context_length: 8192 },
        { id: 'c', state: 'ready' },
      ],
      unnameable: 0,
    });
  });

  it.each([
    ['an error of a loading engine', 503, '{"error":{"message":"Loading model"}}', 'answered 503'],
    ['garbage', 200, '<html>', 'not a list of models'],
    ['another shape', 200, '{"data":[{"id":7}]}', 'not a list of models'],
    ['a key that is missing', 401, '{}', '--engine-key-file'],
    ['more than 1 MiB', 200, 'x'.repeat(1_100_000), 'longer than 1 MiB'],
  ])('takes %s for no evidence', async (_what, status, body, reason) => {
    const sighting = await look(status, body);
    expect(sighting).toMatchObject({ kind: 'unknown' });
    expect('reason' in sighting && sighting.reason).toContain(reason);
  });

  it('takes a model for loading that is listed while /health says 503, and asks no more once it serves', async () => {
    const asked: (string | undefined)[] = [];
    let health: number | undefined = 503;
    let meta: object | null = null;
    const server = createServer((req, res) => {
      asked.push(req.url);
      if (req.url === '/health' && health === undefined) return void req.socket.destroy();
      if (req.url === '/health') return void res.writeHead(health ?? 200).end('{"error":{"message":"Loading model"}}');
      res.end(JSON.stringify({ data: [{ id: 'm', owned_by: 'llamacpp', meta }] }));
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const address = server.address();
    const port = typeof address === 'object' && address ? address.port : 0;
    const probe = new EngineProbe({ origin: `http://127.0.0.1:${port}`, pathPrefix: '' });
    onTestFinished(async () => {
      await probe.close();
      server.close();
    });
    const loading = { kind: 'loading', models: [{ id: 'm', state: 'loading' }] };
    const ready = { kind: 'models', models: [{ id: 'm', state: 'ready' }] };
    expect(await probe.look()).toMatchObject(loading);
    meta = {};
    expect(await probe.look()).toMatchObject(loading);
    health = 404; // an engine without the path
    expect(await probe.look()).toMatchObject(ready);
    const before = asked.length;
    expect(await probe.look()).toMatchObject(ready);
    expect(asked.slice(before)).toEqual(['/v1/models']);
    [health, meta] = [503, null]; // started again
    expect(await probe.look()).toMatchObject(loading);
    health = undefined;
    expect(await probe.look()).toMatchObject(ready);
  });

  it('takes a list that is null for an empty one', async () => {
    expect(await look(200, '{"object":"list","data":null}')).toEqual({ kind: 'models', models: [], unnameable: 0 });
    expect(await look(200, '{"error":"no"}')).toMatchObject({ kind: 'unknown' });
  });

  it('leaves out a model that no registry could name, and no other', async () => {
    const data = ['', 'x'.repeat(257), 'y'.repeat(256), 'good'].map((id) => ({ id }));
    const sighting = await look(200, JSON.stringify({ data }));
    expect('models' in sighting && sighting.models.map(({ id }) => id)).toEqual(['y'.repeat(256), 'good']);
  });

  it('knows 64 models at most, as the registry does', async () => {
    const data = Array.from({ length: 100 }, (_, i) => ({ id: `m${i}` }));
    const sighting = await look(200, JSON.stringify({ data }));
    expect('models' in sighting && sighting.models).toHaveLength(64);
  });
});

describe('a watch', () => {
  it('looks at once when an answer does not fit what is believed, and not more than four times a second', async () => {
    let looks = 0;
    let change = () => {};
    const results: EngineProbeResult[] = [
      { kind: 'models', models: [{ id: 'm', state: 'ready' }], unnameable: 0 },
      { kind: 'models', models: [], unnameable: 0 },
    ];
    const watch = new EngineWatch({
      look: async () => results[looks++] ?? { kind: 'unknown', reason: '' },
      onChange: () => change(),
      onWaiting: () => {},
      now: () => performance.now(),
    });
    onTestFinished(() => watch.close());
    const changed = () =>
      new Promise<void>((resolve) => {
        change = resolve;
      });
    const first = changed();
    watch.open();
    await first;
    const [from, second] = [performance.now(), changed()];
    for (let n = 0; n < 100; n++) watch.soon();
    await second;
    expect(watch.health.models).toEqual([]);
    expect(performance.now() - from).toBeGreaterThan(200);
    expect(looks).toBe(2);
  });
});

describe('a prefill engine that accepts connections and never answers', () => {
  /** Shorter than the wait for the answer of one probe, which is 5 s on every machine. */
  const SOON_MS = 4_000;

  /**
   * A decode engine and its prefill engines. The first prefill engine is silent. `asked`: it has a connection.
   * `waits`: the first probe of the silent one has not ended.
   */
  async function decoding(prefillUrls: readonly string[]) {
    const connections: Socket[] = [];
    const asked = Promise.withResolvers<void>();
    const silent = createTcpServer((socket) => {
      connections.push(socket.on('error', () => {}).resume());
      asked.resolve();
    });
    await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve));
    const address = silent.address();
    const port = typeof address === 'object' && address ? address.port : 0;
    const decode = await startEngine({ models: ['m'] });
    const states = { serves: Promise.withResolvers<void>(), lost: Promise.withResolvers<void>() };
    const engine = new Engine({
      command: undefined,
      target: parseEngineTarget({ url: decode.url, prefillUrls: [`http://127.0.0.1:${port}`, ...prefillUrls] }),
      env: {},
      stdout: new PassThrough().resume(),
      stderr: new PassThrough().resume(),
      log: () => {},
      onHealth: ({ everReady, answering }) => {
        if (answering) states.serves.resolve();
        else if (everReady) states.lost.resolve();
      },
      now: () => performance.now(),
    });
    onTestFinished(async () => {
      await engine.unwatch();
      await decode.close();
      for (const connection of connections) connection.destroy();
      silent.close();
    });
    const waits = () => connections[0]?.readableEnded === false && connections[0].closed === false;
    return { engine, decode, asked: asked.promise, serves: states.serves.promise, lost: states.lost.promise, waits };
  }

  it('does not delay the news that the decode engine serves or has ended', async () => {
    const prefill = await startEngine({ models: ['m'] });
    onTestFinished(() => prefill.close());
    const { engine, decode, asked, serves, lost, waits } = await decoding([prefill.url]);
    await Promise.all([asked, serves]);
    await decode.close();
    engine.lookSoon();
    await lost;
    expect(waits()).toBe(true);
  });

  it('does not delay the end of the watch', async () => {
    const { engine, asked } = await decoding([]);
    await asked;
    const late = delay(SOON_MS, 'late', { ref: false });
    expect(await Promise.race([engine.unwatch(), late])).toBe(undefined);
  });
});

describe('facts', () => {
  it('hold for one model or for all, and a named one wins', () => {
    const flags = ['quantization=fp8', 'org/m:8b:quantization=awq', 'context=1000'].map(parseFact);
    const models = [
      { id: 'org/m:8b', state: 'ready' as const, context_length: 9 },
      { id: 'other', state: 'ready' as const },
    ];
    expect(applyFacts(models, {}, flags)).toEqual([
      { id: 'org/m:8b', state: 'ready', context_length: 1000, quantization: 'awq' },
      { id: 'other', state: 'ready', context_length: 1000, quantization: 'fp8' },
    ]);
  });

  it('say what a model hears and speaks, for engines that do not', () => {
    const flags = ['w:input=audio', 'w:output=text', 's:output=audio'].map(parseFact);
    const models = [
      { id: 'w', state: 'ready' as const },
      { id: 's', state: 'ready' as const },
    ];
    expect(applyFacts(models, {}, flags)).toEqual([
      { id: 'w', state: 'ready', input_modalities: ['audio'], output_modalities: ['text'] },
      { id: 's', state: 'ready', output_modalities: ['audio'] },
    ]);
    for (const wrong of ['input=sound', 'output=', 'input=text;audio'])
      expect(() => parseFact(wrong)).toThrow(/is not a value for (in|out)put/);
  });

  it('are read from the command of a known engine, below what a person states', () => {
    const facts = commandFacts(words('vllm serve N --quantization awq --revision abc'));
    const [model] = applyFacts([{ id: 'N', state: 'ready' }], facts, [parseFact('revision=def')]);
    expect(model).toEqual({ id: 'N', state: 'ready', engine: 'vllm', quantization: 'awq', revision: 'def' });
    expect(commandFacts(words('other --quantization awq'))).toEqual({});
    const flags = '--tool-call-parser hermes --reasoning-parser=qwen3 --max-num-seqs 64 --max-model-len 32k';
    expect(commandFacts(words(`vllm serve N ${flags}`))).toEqual({
      engine: 'vllm',
      tool_parser: 'hermes',
      reasoning_parser: 'qwen3',
      max_batch: 64,
    });
    expect(commandFacts(words('lmdeploy serve api_server N --session-len 8192 --max-batch-size 4'))).toEqual({
      engine: 'lmdeploy',
      context_length: 8192,
      max_batch: 4,
    });
    expect(commandFacts(words('llama-server -m q.gguf -c 8192'))).toEqual({ engine: 'llama.cpp' });
    expect(commandFacts(words('vllm serve N --revision $REV --max-num-seqs -1'))).toEqual({ engine: 'vllm' });
  });

  it.each([
    ['Qwen/Qwen3-8B-FP8', 'fp8'],
    ['RedHatAI/Llama-3.1-8B-Instruct-FP8-dynamic', 'fp8'],
    ['Qwen/Qwen2.5-7B-Instruct-GPTQ-Int8', 'int8'],
    ['neuralmagic/Meta-Llama-3.1-8B-quantized.w4a16', 'w4a16'],
    ['/models/Qwen3-8B-Q4_K_M.gguf', 'q4_k_m'],
    ['llama3:8b-q8_0', 'q8_0'],
    ['org/M-W4A16-KV-FP8', undefined],
    ['Qwen/Qwen3-8B', undefined],
    ['org/m-BF16', undefined], // a flag may quantize it
    ['org/fp80', undefined],
  ])('are read from the name %s, below everything else', (id, quantization) => {
    expect(applyFacts([{ id, state: 'ready' }], {}, [])[0]?.quantization).toBe(quantization);
    const command = commandFacts(words(`vllm serve ${id} --quantization awq`));
    expect(applyFacts([{ id, state: 'ready' }], command, [])[0]?.quantization).toBe('awq');
  });
});
