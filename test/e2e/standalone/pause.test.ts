/** A client that sends more than is taken of it: it waits, gets what is for it, and is missed when it resets. */
import { readFile } from 'node:fs/promises';
import { afterEach, describe, expect, test } from 'vitest';
import { NO_OPENSSL, OPENSSL, selfSigned } from '../../support/certificate.ts';
import { endAll, eventually, temporaryDirectory } from '../../support/processes.ts';
import { sendUntilHeld } from '../../support/raw.ts';
import { GET, HEAD, House, TOKEN } from './outlet-house.ts';

const WITHIN_MS = 1_000;

afterEach(endAll);

async function openHouse(secure: boolean): Promise<House> {
  if (!secure) return new House().open();
  const { cert, key } = selfSigned(await temporaryDirectory(), 'pause');
  return new House().open({ cert: await readFile(cert), key: await readFile(key) });
}

describe.each([
  ['TCP', false],
  ['TLS', true],
])('a client by %s that workerd does not read on', (_, secure) => {
  test('is missed within a second when it resets', async ({ skip }) => {
    skip(secure && !OPENSSL, NO_OPENSSL);
    const house = await openHouse(secure);
    const { client, upstream } = await house.exchange(GET, secure);
    // A reader of its own: what arrives stays in the kernel.
    upstream.socket.pause();
    await sendUntilHeld(client.socket);
    expect(upstream.closed).toBe(false);
    client.reset();
    // Its end is behind what was not read: writing tells, of nothing, since a byte for the client would tell the gateway too.
    await eventually('workerd’s side is gone', WITHIN_MS, () => {
      upstream.socket.write('');
      return upstream.error === undefined ? undefined : true;
    });
  });

  test('gets a stream whole meanwhile, and is read on when workerd reads', async ({ skip }) => {
    skip(secure && !OPENSSL, NO_OPENSSL);
    const house = await openHouse(secure);
    const object = await house.object();
    const { client, upstream } = await house.exchange(GET, secure);
    upstream.socket.pause();
    await sendUntilHeld(client.socket);
    object.announce();
    upstream.socket.write(house.marked('first'));
    await object.frame('credit');
    const tokens = await object.tokensFor(1_500);
    object.end(tokens * TOKEN.length);
    await client.expectText(`${HEAD}5\r\nfirst\r\n${`5\r\n${TOKEN}\r\n`.repeat(tokens)}0\r\n\r\n`);
    const before = upstream.bytes.length;
    upstream.socket.resume();
    await eventually('it is read on', 5_000, () => (upstream.bytes.length > before + 1024 * 1024 ? true : undefined));
    expect(client.closed).toBe(false);
  });
});
