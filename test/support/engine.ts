/**
 * The mock engine: an HTTP server that answers like vLLM but has no model. It admits this in its banner, in `owned_by`
 * and in `system_fingerprint`. Importable for tests (`startEngine`) and runnable (`node test/support/engine.ts --port 0
 * --model NAME`). The npm package has it as `otela-mock-engine`, for readers without a GPU.
 */
import { createServer, type Server } from 'node:http';
import { parseArgs } from 'node:util';
import { neverRejects } from '../../shared/timing/in-background.ts';
import type { Behaviour } from './engine/behaviour.ts';
import { ENGINE_FORMS } from './engine/forms.ts';
import { type EngineOptions, MockEngine } from './engine/mock-engine.ts';
import { RealtimeSessions } from './engine/realtime.ts';
import type { EngineRequest, RequestLog } from './engine/record.ts';

export type { Behaviour } from './engine/behaviour.ts';
export type { EngineOptions } from './engine/mock-engine.ts';
export type { EngineRequest } from './engine/record.ts';

export interface Engine {
  /** Origin and path prefix of the engine, without a slash at the end. */
  url: string;
  port: number;
  /** The newest 10,000 requests, oldest first. */
  requests: readonly EngineRequest[];
  running(): number;
  when: RequestLog['when'];
  /** Sets the behavior for the next `requests` requests (absent: for all); a request's own wishes take precedence. */
  control(behaviour: Behaviour, requests?: number): void;
  setModels(models: string[]): void;
  /** The level at which the engine sleeps; 0: it is awake. */
  sleepLevel(): number;
  /** Names of the loaded LoRA adapters. */
  adapters(): string[];
  /** Number of prompts that got their keys and values from a prefill engine. */
  received(): number;
  /** Breaks all connections, even during a transfer, and continues to listen. */
  hangUp(): void;
  /** Closes the server and its open connections. */
  close(): Promise<void>;
}

function listen(server: Server, port: number, host: string): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, host, () => {
      const address = server.address();
      resolve(typeof address === 'object' && address !== null ? address.port : port);
    });
  });
}

export async function startEngine(options: EngineOptions = {}): Promise<Engine> {
  const engine = new MockEngine(options);
  const server = createServer({ requestTimeout: 0, headersTimeout: 60_000, keepAliveTimeout: 60_000 }, (req, res) => {
    neverRejects(engine.handle(req, res));
  });
  const realtime = new RealtimeSessions(engine);
  server.on('upgrade', (request, socket, head) => realtime.accept(request, socket, head));
  const host = options.host ?? '127.0.0.1';
  const port = await listen(server, options.port ?? 0, host);
  return {
    url: `http://${host}:${port}${options.pathPrefix ?? ''}`,
    port,
    requests: engine.log.requests,
    running: () => engine.log.running,
    when: engine.log.when.bind(engine.log),
    control: engine.control.bind(engine),
    setModels: (models) => {
      engine.models = models;
    },
    sleepLevel: () => engine.management.level,
    adapters: () => [...engine.management.adapters.keys()],
    received: () => engine.transfer?.received ?? 0,
    hangUp: () => {
      server.closeAllConnections();
      realtime.end();
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
        realtime.end();
      }),
  };
}

const USAGE = `otela-mock-engine --port 8000 --model NAME
answers like vLLM, with words from a fixed list: for a test without a GPU`;

/**
 * `--port N --host H --model NAME… --tokens N --rate TOKENS_PER_SECOND --prompt-rate TOKENS_PER_SECOND --slots N
 * --journal FILE --prefix /p --form vllm --checkpoint DIRECTORY --api-key-env VAR --sleep-mode --enable-lora`. SIGUSR2
 * ends it with code 3.
 */
export async function main(): Promise<void> {
  const { values } = parseArgs({
    // `serve NAME` and unknown flags are accepted, so that it can replace `vllm serve NAME …`.
    strict: false,
    allowPositionals: true,
    options: {
      port: { type: 'string', default: '0' },
      host: { type: 'string', default: '127.0.0.1' },
      model: { type: 'string', multiple: true },
      tokens: { type: 'string' },
      rate: { type: 'string' },
      'prompt-rate': { type: 'string' },
      slots: { type: 'string' },
      journal: { type: 'string' },
      prefix: { type: 'string', default: '' },
      form: { type: 'string' },
      checkpoint: { type: 'string' },
      'start-after-ms': { type: 'string', default: '0' },
      'api-key-env': { type: 'string' },
      'sleep-mode': { type: 'boolean' },
      'enable-lora': { type: 'boolean' },
      help: { type: 'boolean' },
    },
  });
  if (values.help) return console.log(USAGE);
  const models = Array.isArray(values.model) ? values.model.map(String) : ['stand-in'];
  const behaviour: Behaviour = {};
  if (values.tokens !== undefined) behaviour.tokens = Number(values.tokens);
  if (values.rate !== undefined) behaviour.tokensPerSecond = Number(values.rate);
  const apiKey = values['api-key-env'] === undefined ? undefined : process.env[String(values['api-key-env'])];
  const form = ENGINE_FORMS.find((known) => known === values.form);
  await new Promise((resolve) => setTimeout(resolve, Number(values['start-after-ms'])));
  const engine = await startEngine({
    port: Number(values.port),
    host: String(values.host),
    pathPrefix: String(values.prefix),
    models,
    behaviour,
    ...(apiKey === undefined ? {} : { apiKey }),
    ...(values['sleep-mode'] === true ? { sleepMode: true } : {}),
    ...(values['enable-lora'] === true ? { lora: true } : {}),
    ...(values.slots === undefined ? {} : { slots: Number(values.slots) }),
    ...(form === undefined ? {} : { form }),
    ...(values.checkpoint === undefined ? {} : { checkpoint: String(values.checkpoint) }),
    ...(values['prompt-rate'] === undefined ? {} : { promptRate: Number(values['prompt-rate']) }),
    ...(values.journal === undefined ? {} : { journal: String(values.journal) }),
  });
  console.log(`stand-in engine (no model: its words come from a list) serves ${models.join(', ')}`);
  console.log(`stand-in engine ready ${engine.url}`);
  const stop = () => process.exit(0);
  process.once('SIGTERM', stop);
  process.once('SIGINT', stop);
  process.once('SIGUSR2', () => process.exit(3));
}

if (import.meta.main) await main();
