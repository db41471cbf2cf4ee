import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { IDLE_STEP, type StepModel } from '../../../scheduler/roofline/step-model.ts';
import { neverRejects } from '../../../shared/timing/in-background.ts';

interface Running {
  prompt: number;
  left: number;
  answer: number;
  write(data: string): void;
  end(): void;
}

/**
 * An engine with the exact step times of a `StepModel`, because there is no GPU here to calibrate. Prompts are computed
 * whole, together with the decoding sequences; a word is a token. It has its own clock, so that a load of minutes takes
 * no time.
 */
export class StandInEngine {
  readonly #step: StepModel;
  readonly #waiting: Running[] = [];
  #decoding: (Running & { context: number })[] = [];
  #busy = false;
  /** Milliseconds. */
  clock = 0;
  requests = 0;
  readonly prompts = new Set<string>();

  constructor(step: StepModel) {
    this.#step = step;
  }

  now = (): number => this.clock;

  /** The engine's HTTP API, without sockets. */
  fetch = async (input: Parameters<typeof fetch>[0], init?: RequestInit): Promise<Response> => {
    const path = new URL(String(input)).pathname;
    if (path === '/version') return Response.json({ version: '9.9.9' });
    if (path === '/v1/models') return Response.json({ data: [{ id: 'served' }] });
    if (path !== '/v1/completions') return new Response('no such path', { status: 404 });
    const encoder = new TextEncoder();
    const body = new ReadableStream<Uint8Array>({
      start: (controller) =>
        this.#accept(
          String(init?.body),
          (data) => controller.enqueue(encoder.encode(`data: ${data}\n\n`)),
          () => controller.close(),
        ),
    });
    return new Response(body, { headers: { 'content-type': 'text/event-stream' } });
  };

  #accept(body: string, write: (data: string) => void, end: () => void): void {
    const { prompt, max_tokens: answer } = JSON.parse(body) as { prompt: string; max_tokens: number };
    this.requests++;
    this.prompts.add(prompt.slice(0, 60));
    this.#waiting.push({ prompt: prompt.split(' ').length, left: answer, answer, write, end });
    if (!this.#busy) neverRejects(this.#run());
  }

  async #run(): Promise<void> {
    this.#busy = true;
    await turn();
    while (this.#waiting.length + this.#decoding.length > 0) {
      const prompts = this.#waiting.splice(0);
      const pairs = prompts.reduce((sum, { prompt }) => sum + (prompt * (prompt + 1)) / 2, 0);
      const tokens = prompts.reduce((sum, { prompt }) => sum + prompt, 0);
      this.clock +=
        this.#step.seconds({
          ...IDLE_STEP,
          decodes: this.#decoding.length,
          context: this.#decoding.reduce((sum, { context }) => sum + context + 1, 0),
          prefillTokens: tokens,
          prefillPairs: pairs,
          prefillKeys: tokens,
          prefillEnds: prompts.length,
        }) * 1e3;
      for (const one of this.#decoding) one.context++;
      this.#decoding.push(...prompts.map((one) => ({ ...one, context: one.prompt })));
      for (const one of this.#decoding) this.#token(one);
      this.#decoding = this.#decoding.filter(({ left }) => left > 0);
      await turn();
    }
    this.#busy = false;
  }

  #token(one: Running): void {
    one.left--;
    one.write(JSON.stringify({ choices: [{ text: ' word' }] }));
    if (one.left > 0) return;
    one.write(JSON.stringify({ choices: [], usage: { prompt_tokens: one.prompt, completion_tokens: one.answer } }));
    one.write('[DONE]');
    one.end();
  }

  /** The same on a real port. */
  async listen(): Promise<{ url: string; close(): Promise<void> }> {
    const server = createServer((request, response) => neverRejects(this.#answer(request, response)));
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as AddressInfo;
    const close = () => new Promise<void>((resolve) => server.close(() => resolve()).closeAllConnections());
    return { url: `http://127.0.0.1:${port}`, close };
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    let body = '';
    for await (const chunk of request) body += String(chunk);
    const answer = await this.fetch(`http://engine${request.url}`, { method: 'POST', body });
    response.writeHead(answer.status, Object.fromEntries(answer.headers));
    for await (const chunk of answer.body ?? []) response.write(chunk);
    response.end();
  }
}

/** Lets every reader that waits for a token read it, and its time, before the clock continues. */
async function turn(): Promise<void> {
  for (let i = 0; i < 3; i++) await new Promise<void>((resolve) => setImmediate(resolve));
}
