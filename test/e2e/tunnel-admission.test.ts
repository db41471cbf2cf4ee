/** Which agents get a tunnel: the handshake of a socket, and the ticket that is presented before it. */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { helloMessage } from '../../shared/lattice/session-id.ts';
import { endAll, eventually } from '../support/processes.ts';
import { chatBody } from '../support/test-cluster.ts';
import { HandAgent } from '../support/tunnel/hand-agent.ts';
import { TestIssuer } from '../support/tunnel/identities.ts';
import { Neighbour } from '../support/tunnel/neighbour.ts';
import { openTunnelBench, type TunnelBench } from '../support/tunnel/tunnel-bench.ts';

let shop: TunnelBench;
let neighbour: Neighbour;
beforeAll(async () => {
  shop = await openTunnelBench();
  neighbour = await Neighbour.open(shop);
});
afterAll(endAll);

let model: string;
let count = 0;
beforeEach(() => {
  model = `admission/${++count}`;
});

const chat = () => shop.ask('/v1/chat/completions', chatBody({}, { model }));

describe('the handshake', () => {
  it('refuses a signature that was made for another socket', async () => {
    const identity = shop.issuer.identity();
    const first = new HandAgent(shop, identity);
    const { nonce } = await first.when('challenge');
    const hello = first.hello(nonce);
    first.send(hello);
    await first.when('welcome');
    const second = new HandAgent(shop, identity);
    await second.when('challenge');
    second.send({ ...hello, generation: 2 });
    expect((await second.closed).code).toBe(4004);
    const third = new HandAgent(shop, identity);
    await third.when('challenge');
    third.send(hello);
    expect((await third.closed).code).toBe(4004);
    expect(first.closeCode).toBeUndefined();
  });

  it('refuses a session that belongs to another key', async () => {
    const own = shop.issuer.identity();
    const agent = new HandAgent(shop, { ...own, session: neighbour.bench.session, ticket: neighbour.bench.ticket });
    const { nonce } = await agent.when('challenge');
    agent.send(agent.hello(nonce, 99));
    expect(await agent.closed).toMatchObject({ code: 4004, reason: expect.stringContaining('signature') });
    await neighbour.serves();
  });

  it('refuses a signature that was made for another gateway', async () => {
    const identity = shop.issuer.identity();
    const agent = new HandAgent(shop, identity);
    const { nonce } = await agent.when('challenge');
    const message = helloMessage(identity.session, 1, nonce, 'gateway.elsewhere.example');
    agent.send(agent.hello(nonce, 1, { signature: identity.sign(message) }));
    expect(await agent.closed).toMatchObject({ code: 4004, reason: expect.stringContaining(`Host ${shop.url.host}`) });
  });

  it('lets the newest generation win and tells the loser with 4001; an older one is not let in', async () => {
    const identity = shop.issuer.identity();
    const old = await new HandAgent(shop, identity).join([model], 5);
    const older = new HandAgent(shop, identity);
    const { nonce } = await older.when('challenge');
    older.send(older.hello(nonce, 4));
    expect((await older.closed).code).toBe(4001);
    const newer = await new HandAgent(shop, identity).join([model], 6);
    expect(await old.closed).toMatchObject({ code: 4001 });
    const asked = chat();
    newer.answer((await newer.opening()).stream);
    expect((await asked).status).toBe(200);
  });

  it('moves what is under way to the newer socket', async () => {
    const identity = shop.issuer.identity();
    const old = await new HandAgent(shop, identity).join([model], 1);
    const asked = chat();
    const { stream, requestId } = await old.opening();
    old.send({ type: 'accept', stream, bodyOffset: 0, bodyDone: true });
    const newer = await new HandAgent(shop, identity).join([model], 2);
    const again = await newer.when('open');
    expect(again).toMatchObject({ stream, requestId });
    newer.answer(again.stream);
    expect((await asked).status).toBe(200);
  });

  it('a frame before it ends the socket: a copied ticket is no leave to send anything', async () => {
    const agent = new HandAgent(shop);
    await agent.when('challenge');
    agent.send({ type: 'record', sequence: 1, update: agent.words(['before/hello']) });
    expect(await agent.closed).toMatchObject({ code: 4002, reason: expect.stringContaining('before the welcome') });
    const unknown = await shop.ask('/v1/chat/completions', chatBody({}, { model: 'before/hello' }));
    expect(unknown.status).toBe(404);
  });

  it('survives a second one', async () => {
    const agent = new HandAgent(shop);
    const { nonce } = await agent.when('challenge');
    agent.send(agent.hello(nonce), agent.hello(nonce));
    agent.send(agent.hello(nonce, 2));
    await agent.when('welcome');
    agent.send(agent.hello(nonce, 3));
    agent.send({ type: 'record', sequence: 3, update: agent.words([model]) });
    expect((await agent.when('recorded')).sequence).toBe(3);
    const asked = chat();
    agent.answer((await agent.opening()).stream);
    expect((await asked).status).toBe(200);
  });

  it('is not fooled by a socket that ends while its signature is checked', async () => {
    const identity = shop.issuer.identity();
    const real = await new HandAgent(shop, identity).join([model], 1);
    for (let generation = 2; generation < 12; generation++) {
      const ghost = new HandAgent(shop, identity);
      const { nonce } = await ghost.when('challenge');
      ghost.send(ghost.hello(nonce, generation));
      ghost.socket.terminate();
      await ghost.closed;
    }
    const last = await new HandAgent(shop, identity).join([model], 50);
    expect((await real.closed).code).toBe(4001);
    const asked = chat();
    last.answer((await last.opening()).stream);
    expect((await asked).status).toBe(200);
  });
});

describe('a ticket', () => {
  const now = Math.floor(Date.now() / 1000);
  const forged = () => {
    const { ticket, ...identity } = shop.issuer.identity();
    const wrong = ticket.bytes.slice();
    wrong[wrong.length - 1] = (wrong[wrong.length - 1] ?? 0) ^ 1;
    return { ...identity, ticket: { ...ticket, bytes: wrong } };
  };
  const cut = () => {
    const { ticket, ...identity } = shop.issuer.identity();
    return { ...identity, ticket: { ...ticket, bytes: ticket.bytes.slice(0, 80) } };
  };

  it.each([
    ['of an issuer that is not listed', () => new TestIssuer().identity(), 403],
    ['with a forged signature', forged, 400],
    ['that is cut off', cut, 400],
    ['that has ended', () => shop.issuer.identity({ birth: now - 100, expires: now - 10 }), 410],
  ])('%s is refused before any object is asked', async (_, identity, status) => {
    const agent = new HandAgent(shop, identity());
    expect(await agent.refused).toBe(status);
  });

  it('that was copied opens sockets that nobody answers on, and keeps its owner out of none', async () => {
    const strangers = Array.from({ length: 100 }, () => {
      const { ticket, session } = neighbour.bench;
      return new HandAgent(shop, { ...shop.issuer.identity(), ticket, session });
    });
    await Promise.all(strangers.map((stranger) => stranger.when('challenge')));
    await eventually('most are gone', 10_000, () =>
      strangers.filter(({ socket }) => socket.readyState >= socket.CLOSING).length >= 36 ? true : undefined,
    );
    const { path } = neighbour.bench;
    const { connections } = path;
    path.cut();
    await eventually('the owner is back', 10_000, () => (path.connections > connections ? true : undefined));
    await eventually('and serves', 10_000, async () => ((await neighbour.ask()).status === 200 ? true : undefined));
    for (const stranger of strangers) stranger.socket.terminate();
    neighbour.reconnected();
  });

  it('whose session is ended by the operator ends its tunnel with 4006, and opens none again', async () => {
    const agent = await new HandAgent(shop).join([model]);
    await shop.admin('DELETE', `nodes/${agent.identity.session}`);
    expect(await agent.closed).toMatchObject({ code: 4006, reason: 'operator' });
    await shop.refreshed();
    expect(await new HandAgent(shop, agent.identity).refused).toBe(410);
    expect((await chat()).status).toBe(503);
    await neighbour.serves();
  });
});

it('none of it was an error inside the gateway', () => {
  expect(shop.logs()).toEqual([]);
});
