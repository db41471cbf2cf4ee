/** An agent asks for admission, over real sockets; the test plays the gateways. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { type AddressInfo, connect, createServer as createTcpServer } from 'node:net';
import { describe, expect, it, onTestFinished } from 'vitest';
import { AGENT_VERSION } from '../../../agent/host/agent-version.ts';
import { nodeSigner } from '../../../agent/host/node-crypto.ts';
import {
  type AdmissionOptions,
  AdmissionRefusedError,
  requestAdmission,
} from '../../../agent/tunnel/gateway-admission.ts';
import { fromBase64url, toBase64url } from '../../../shared/lattice/base64url.ts';
import { institution, node } from '../../shared/lattice/house.ts';
import { fakeAdmission, LAB } from '../support/fake-admission.ts';

const lab = institution();

interface Asked {
  authorization: string | undefined;
  body: Record<string, unknown>;
  url: string | undefined;
}

/** Answers POST /agent/admit with `answer`; `asked` has the requests. */
async function gateway(answer: (asked: Asked, response: ServerResponse, n: number) => unknown) {
  const asked: Asked[] = [];
  const server = createServer(async (request: IncomingMessage, response: ServerResponse) => {
    let text = '';
    for await (const chunk of request) text += chunk;
    const { authorization } = request.headers;
    asked.push({ authorization, body: JSON.parse(text), url: request.url });
    const said = await answer(asked.at(-1) as Asked, response, asked.length);
    if (said !== undefined) response.end(JSON.stringify(said));
  });
  return { url: await listening(server), asked };
}

async function listening(server: Server | ReturnType<typeof createTcpServer>): Promise<URL> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    if ('closeAllConnections' in server) server.closeAllConnections();
    server.close();
  });
  return new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
}

/** An honest gateway's response. */
async function ticketFor({ body }: Asked, more: Record<string, unknown> = {}) {
  const publicKey = fromBase64url(String(body.public_key), 32) ?? new Uint8Array();
  const { ticket } = await fakeAdmission({ ...options([]), key: { publicKey, sign: () => new Uint8Array() } });
  return {
    ticket: toBase64url(ticket.bytes),
    session: ticket.session,
    issuer: ticket.issuer,
    issuers: [{ name: 'local', root: toBase64url(ticket.certificate.root) }],
    gateways: [],
    ...more,
  };
}

const refusal = (response: ServerResponse, status: number, message: string) => {
  response.statusCode = status;
  return { error: { message, type: 'x', code: 'y', param: null } };
};

function options(gateways: URL[], more: Partial<AdmissionOptions> = {}): AdmissionOptions & { lines: string[] } {
  const lines: string[] = [];
  return {
    gateways,
    token: 'otela-join-secret',
    cluster: undefined,
    key: nodeSigner(),
    jobEndsAt: undefined,
    env: {},
    signal: new AbortController().signal,
    log: (line) => lines.push(line),
    random: () => 0,
    lines,
    ...more,
  };
}

describe('an agent that asks to be let in', () => {
  it('shows its join token and a new key, says what it knows, and gets a ticket for that key', async () => {
    const { url, asked } = await gateway((question) =>
      ticketFor(question, { gateways: [{ url: 'http://127.0.0.1:1/other', own: true }, { url: 'http://peer/' }] }),
    );
    const question = options([new URL(`${url.href}base/`)], {
      cluster: 'alps',
      jobEndsAt: new Date('2099-01-02T03:04:05Z'),
    });
    const { ticket, issuers, gateways } = await requestAdmission(question);
    expect(asked).toEqual([
      {
        url: '/base/agent/admit',
        authorization: 'Bearer otela-join-secret',
        body: {
          protocol: 2,
          version: AGENT_VERSION,
          public_key: toBase64url(question.key.publicKey),
          cluster: 'alps',
          job_ends_at: '2099-01-02T03:04:05.000Z',
        },
      },
    ]);
    expect(Buffer.compare(ticket.sessionKey, question.key.publicKey)).toBe(0);
    expect(issuers).toHaveLength(1);
    expect(gateways).toEqual([
      { url: new URL('http://127.0.0.1:1/other'), own: true },
      { url: new URL('http://peer/'), own: false },
    ]);
  });

  it('tries ever more rarely while no gateway can be reached, and is admitted when one is back', async () => {
    let at = 0;
    const { url, asked } = await gateway((question, response, n) =>
      n < 4 ? refusal(response, 503, 'the store is down') : ticketFor(question),
    );
    const question = options([url], { random: () => (at++ % 2 === 0 ? 0 : 0.5) });
    const began = performance.now();
    await requestAdmission(question);
    expect(asked).toHaveLength(4);
    expect(performance.now() - began).toBeGreaterThan(125 + 250 + 500);
    expect(question.lines[0]).toContain('503 the store is down');
    expect(question.lines.join()).not.toContain('secret');
  });

  it('waits as long as a gateway asks it to', async () => {
    const { url } = await gateway((question, response, n) => {
      if (n === 2) return ticketFor(question);
      response.setHeader('retry-after', '1');
      return refusal(response, 429, 'too many');
    });
    const began = performance.now();
    await requestAdmission(options([url]));
    expect(performance.now() - began).toBeGreaterThan(990);
  });

  it('takes the ticket of whichever gateway answers; one that swallows what it is sent costs a second', async () => {
    let open = 0;
    const swallows = createTcpServer((socket) => {
      open++;
      socket.on('error', () => {}).once('close', () => open--);
    });
    const silent = await listening(swallows);
    let givenUp: boolean | undefined;
    const { url } = await gateway((question) => {
      givenUp = open === 0;
      return ticketFor(question);
    });
    const began = performance.now();
    await requestAdmission(options([silent, url]));
    expect(performance.now() - began).toBeGreaterThan(950);
    expect(givenUp, 'the silent one was given up first').toBe(false);
  });

  it('goes on at once to the next where a gateway refuses the connection', async () => {
    const { url } = await gateway((question) => ticketFor(question));
    const silent = await listening(createTcpServer((socket) => socket.on('error', () => {})));
    const tookMs = async (first: URL) => {
      const began = performance.now();
      await requestAdmission(options([first, url]));
      return performance.now() - began;
    };
    // After a silent gateway the next one waits for its turn.
    const waited = await tookMs(silent);
    expect(await tookMs(new URL('http://127.0.0.1:1'))).toBeLessThan(waited);
  });

  it.each([400, 401, 403, 426])('gives up when every gateway answers %d', async (status) => {
    const { url, asked } = await gateway((_, response) => refusal(response, status, 'not you'));
    const other = await gateway((_, response) => refusal(response, 401, 'nor here'));
    const outcome = requestAdmission(options([url, other.url]));
    await expect(outcome).rejects.toBeInstanceOf(AdmissionRefusedError);
    await expect(outcome).rejects.toMatchObject({ refusal: { status: 401, message: 'nor here' } });
    expect(asked).toHaveLength(1);
  });

  it('keeps on trying the gateway that is away when another one refuses it', async () => {
    const refusing = await gateway((_, response) => refusal(response, 401, 'not here'));
    const { url } = await gateway((question, response, n) =>
      n < 3 ? refusal(response, 503, 'soon') : ticketFor(question),
    );
    await requestAdmission(options([refusing.url, url]));
    expect(refusing.asked).toHaveLength(1);
  });

  it('stops when it is told to', async () => {
    const stop = new AbortController();
    const asked = requestAdmission(options([new URL('http://127.0.0.1:1')], { signal: stop.signal, random: () => 1 }));
    setTimeout(() => stop.abort(), 300);
    await expect(asked).rejects.toThrow();
  });
});

describe('an answer that cannot be trusted', () => {
  it.each<[string, (asked: Asked, response: ServerResponse) => unknown]>([
    [
      'another session’s ticket',
      async (asked) => ticketFor({ ...asked, body: { public_key: toBase64url(nodeSigner().publicKey) } }),
    ],
    ['a ticket of another name', async (asked) => ticketFor(asked, { session: node(lab.gateway()).session })],
    [
      'a forged ticket',
      async (asked) => {
        const { ticket, ...rest } = await ticketFor(asked);
        return { ...rest, ticket: `${ticket.slice(0, -8)}AAAAAAAA` };
      },
    ],
    ['no ticket', () => ({ hello: 'world' })],
    ['a page of a proxy', (_, response) => void response.end('<html>please log in</html>')],
    [
      'an answer without end',
      (_, response) => {
        const more = () => {
          while (response.writable && response.write('x'.repeat(65_536)));
          response.once('drain', more);
        };
        more();
      },
    ],
  ])('is no admission and no refusal: %s', async (_what, answer) => {
    const { url } = await gateway((asked, response, n) => (n === 1 ? answer(asked, response) : ticketFor(asked)));
    const question = options([url]);
    await requestAdmission(question);
    expect(question.lines).toHaveLength(1);
    expect(question.lines[0]).toContain('not admitted yet');
  });

  it('is not an admission if its ticket is from another institution than the first, which would then own the node', async () => {
    const { url } = await gateway((asked) => ticketFor(asked));
    const stop = new AbortController();
    const question = options([url], { issuer: institution().issuer, signal: stop.signal });
    const log = question.log;
    const asked = requestAdmission({
      ...question,
      log: (line) => {
        log(line);
        stop.abort();
      },
    });
    await expect(asked).rejects.toThrow();
    expect(question.lines[0]).toContain('from another institution than its first ticket');
    await requestAdmission(options([url], { issuer: LAB }));
  });

  it('names no gateway in clear where the one that names it was not asked in clear, nor more than sixteen', async () => {
    const gateways = Array.from({ length: 20 }, (_, n) => ({ url: `http://127.0.0.1:${n + 1}/` }));
    const { url } = await gateway((asked) => ticketFor(asked, { gateways }));
    expect((await requestAdmission(options([url]))).gateways).toHaveLength(16);
  });
});

describe('the way round by a peer', () => {
  /** An HTTP proxy that forwards, and records the requested targets. */
  async function proxy() {
    const targets: string[] = [];
    const server = createServer();
    server.on('connect', (request, socket, head) => {
      targets.push(`${request.url} ${request.headers['proxy-authorization'] ?? ''}`);
      const [host, port] = String(request.url).split(':');
      const onward = connect(Number(port), host, () => {
        socket.write('HTTP/1.1 200 OK\r\n\r\n');
        onward.write(head);
        onward.pipe(socket).pipe(onward);
      });
      onward.on('error', () => socket.destroy());
      socket.on('error', () => onward.destroy());
    });
    return { url: await listening(server), targets };
  }

  it('is never taken to a gateway in clear: the token would be the peer’s to read', async () => {
    const { url, targets } = await proxy();
    const stop = new AbortController();
    const question = options([new URL('http://127.0.0.1:1')], { peerProxies: [() => url], signal: stop.signal });
    const asked = requestAdmission(question);
    setTimeout(() => stop.abort(), 500);
    await expect(asked).rejects.toThrow();
    expect(targets).toEqual([]);
  });

  it('is used for all connections if the node has no direct connection', async () => {
    const { url, targets } = await proxy();
    const door = await gateway((asked) => ticketFor(asked));
    const own = new URL(url);
    own.username = 'who';
    own.password = 'pass';
    await requestAdmission(options([door.url], { proxy: () => own }));
    expect(targets).toEqual([`${door.url.host} Basic ${Buffer.from('who:pass').toString('base64')}`]);
  });
});
