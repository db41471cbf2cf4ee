/**
 * LOAD and RATE as a gateway gets them: while requests run, and not to a gateway that would disconnect because of them.
 */
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, expect, test } from 'vitest';
import type { LoadCounter } from '../../../agent/attempts/load-reports.ts';
import { LoadMeter } from '../../../agent/engine/engine-load.ts';
import { atEnd, endAll, eventually } from '../../support/processes.ts';
import { MODEL } from '../../support/test-cluster.ts';
import { openAgentSide } from '../../support/tunnel/agent-side.ts';
import { type HandSocket, openingFrame } from '../../support/tunnel/hand-gateway.ts';

afterEach(endAll);

/** The counter of an engine with `running` requests. */
class Counter implements LoadCounter {
  running = 0;
  looks = 0;
  firstTokens: number[] = [];
  readonly full = undefined;
  begin(): void {
    this.running++;
  }
  end(): void {
    this.running--;
  }
  firstToken(ms: number): void {
    this.firstTokens.push(ms);
  }
  look(): void {
    this.looks++;
  }
  get current() {
    return { running: this.running, waiting: 0, kvUse: 0.5, tokensPerSecond: 12.3 * this.running };
  }
}

function ask(socket: HandSocket, tokensPerSecond: number): void {
  const body = { model: MODEL, stream: true, messages: [], stand_in: { tokens: 1_000, tokensPerSecond } };
  const bytes = new TextEncoder().encode(JSON.stringify(body));
  socket.put(
    openingFrame(1, { streaming: true, bodyLength: bytes.length }),
    { type: 'data', stream: 1, offset: 0, bytes },
    { type: 'end', stream: 1, offset: bytes.length },
  );
}

test('a stream that goes on is told of once a second, and its end; then the tunnel is silent', async () => {
  const load = new Counter();
  const { socket } = await openAgentSide({ load }, 25);
  ask(socket, 10);
  await eventually('three loads', 6_000, () => (socket.all('load').length >= 3 ? true : undefined));
  expect(load.looks).toBeGreaterThanOrEqual(2);
  expect(socket.all('rate').map(({ tokensPerSecond }) => tokensPerSecond)).toEqual(
    socket.all('load').map(({ running }) => 12.3 * running),
  );
  const frames = socket.frames.filter(({ type }) => type === 'load' || type === 'rate').map(({ type }) => type);
  expect(frames.slice(0, 2)).toEqual(['rate', 'load']);
  socket.put({ type: 'reset', stream: 1, code: 'cancelled', message: '' });
  await eventually('idle', 3_000, () => (socket.all('load').at(-1)?.running === 0 ? true : undefined));
  const said = socket.all('load').length;
  await new Promise((resolve) => setTimeout(resolve, 1_500)); // longer than the interval between two
  expect(socket.all('load')).toHaveLength(said);
});

test.each([undefined, 24])('a gateway that reads frames up to %s gets LOAD alone', async (reads) => {
  const { socket } = await openAgentSide({ load: new Counter() }, reads);
  ask(socket, 100);
  await socket.when('load');
  await eventually('a second one', 3_000, () => (socket.all('load').length >= 2 ? true : undefined));
  expect(socket.all('rate')).toEqual([]);
});

/** An agent with the real meter. Its engine records the paths of requests, and answers them with `answer`. */
async function meteredAgent(answer: (response: ServerResponse) => void) {
  const asked: string[] = [];
  const server = createServer((request, response) => {
    request.resume().on('end', () => {
      asked.push(request.url ?? '');
      if (request.url === '/metrics') response.end('vllm:num_requests_running 7\nvllm:num_requests_waiting 0\n');
      else answer(response);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const target = { origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, pathPrefix: '' };
  const load = new LoadMeter(() => target);
  atEnd(async () => {
    await load.close();
    server.closeAllConnections();
    server.close();
  });
  const { socket } = await openAgentSide({ load, engine: () => target });
  return { asked, load, socket };
}

test('the engine gets a request before it is asked for its load, and its response leaves first', async () => {
  let answered: ServerResponse | undefined;
  const { asked, load, socket } = await meteredAgent((response) => {
    answered = response;
    response.setHeader('content-type', 'application/json').end('{}');
  });
  ask(socket, 0);
  await eventually('both', 6_000, () => (asked.length >= 2 ? true : undefined));
  expect(asked).toEqual(['/v1/chat/completions', '/metrics']);
  expect(answered?.writableFinished, 'the answer was complete when the load was asked for').toBe(true);
  await socket.when('end');
  await load.settled();
  expect(load.current.running).toBe(7);
});

test('the load is read while a request waits for its answer', async () => {
  const { asked, load } = await meteredAgent(() => {}).then((side) => {
    ask(side.socket, 0);
    return side;
  });
  await eventually('the load', 6_000, () => (asked.includes('/metrics') ? true : undefined));
  await load.settled();
  expect(asked[0]).toBe('/v1/chat/completions');
  expect(load.current.running).toBe(7);
});
