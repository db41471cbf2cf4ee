/** Events reach the operator's mail, by a real SMTP server. */
import { readFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { text } from 'node:stream/consumers';
import { SMTPServer, type SMTPServerOptions } from 'smtp-server';
import { afterEach, describe, expect, it } from 'vitest';
import { smtpMailer } from '../../../gateway/hosts/node/smtp-mailer.ts';
import { identityEnvironment, openAsker } from '../../support/access-requests.ts';
import { OPENSSL, selfSigned } from '../../support/certificate.ts';
import { Gateway } from '../../support/gateway.ts';
import { atEnd, endAll, eventually, temporaryDirectory } from '../../support/processes.ts';

const FROM = 'otela@example.org';
const MAIL = { from: FROM, to: 'ops@example.org', subject: 'a', text: 'b', messageId: '<1@example.org>' };

interface Received {
  to: string[];
  user: string | undefined;
  secure: boolean;
  message: string;
}

/** @param refuse errors of the next messages */
async function startServer(options: SMTPServerOptions = {}, refuse: string[] = []) {
  const received: Received[] = [];
  const passwords: string[] = [];
  const server = new SMTPServer({
    authOptional: true,
    disabledCommands: options.key === undefined ? ['STARTTLS'] : [],
    onAuth({ username, password }, _, done) {
      passwords.push(password ?? '');
      done(null, { user: username });
    },
    async onData(stream, { envelope, user, secure }, done) {
      const message = await text(stream);
      const error = refuse.shift();
      if (error !== undefined) return done(Object.assign(new Error(error), { responseCode: 451 }));
      received.push({ to: envelope.rcptTo.map(({ address }) => address), user, secure, message });
      done();
    },
    ...options,
  });
  server.on('error', () => {}); // a client that ends a handshake
  await new Promise<void>((done) => void server.listen(0, '127.0.0.1', done));
  atEnd(() => new Promise<void>((done) => server.close(() => done())));
  const { port } = server.server.address() as AddressInfo;
  return { port, received, passwords };
}

afterEach(endAll);

it('each recipient gets a message for each event once, also after a failure, without text of people', async () => {
  const { port, received } = await startServer({}, ['4.3.0 try later']);
  const identity = await identityEnvironment();
  const env = { ...identity.env, SMTP_URL: `smtp://127.0.0.1:${port}` };
  const gateway = await Gateway.start({ env });
  const ask = await openAsker(gateway, identity.port);
  const look = () =>
    gateway.admin('PATCH', 'settings', {
      notifications: { mail: { from: FROM, to: ['ops@example.org', 'b@example.org', 'ops@example.org'] } },
    });
  await look();
  const request = await ask('org/a');
  await look();
  await eventually('both messages', 90_000, async () => (received.length === 2 ? true : undefined));
  await look();
  expect(received.map(({ to }) => to).sort()).toEqual([['b@example.org'], ['ops@example.org']]);
  for (const { message } of received) {
    expect(message).toContain('Subject: OpenTela: access.requested');
    expect(message).toContain(`Message-ID: <access.requested/${request}@example.org>`);
    expect(message).toContain(`request_id: ${request}`);
    expect(message).toContain('model: org/a');
    expect(message).not.toContain('secret');
    expect(message).not.toContain('Ada');
  }
  await gateway.stop();
});

it('the setting is refused without SMTP_URL, with many recipients, and with a header in an address', async () => {
  const gateway = await Gateway.start();
  const set = (...to: string[]) => gateway.admin('PATCH', 'settings', { notifications: { mail: { from: FROM, to } } });
  await expect(set('ops@example.org')).rejects.toThrow('no SMTP_URL');
  await expect(set('ops@example.org\r\nBcc: all@example.org')).rejects.toThrow('must be an e-mail address');
  await expect(set(...Array.from({ length: 9 }, (_, n) => `n${n}@example.org`))).rejects.toThrow('notifications');
  await gateway.stop();
});

it('a password is not sent without TLS', async () => {
  const { port, received, passwords } = await startServer();
  await expect(smtpMailer(`smtp://otela:pw@127.0.0.1:${port}`).send(MAIL)).rejects.toThrow(/TLS/);
  expect([received, passwords]).toEqual([[], []]);
});

it('a server that never greets is given up', async () => {
  const server = createServer(() => {});
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  atEnd(() => void server.close());
  const { port } = server.address() as AddressInfo;
  await expect(smtpMailer(`smtp://127.0.0.1:${port}`).send(MAIL)).rejects.toThrow(/[Gg]reeting/);
});

describe.skipIf(!OPENSSL)('with TLS', () => {
  it('a server with an unknown certificate gets neither password nor message', async () => {
    const { cert, key } = selfSigned(await temporaryDirectory(), 'mail', ['IP:127.0.0.1']);
    const { port, received, passwords } = await startServer({ cert: readFileSync(cert), key: readFileSync(key) });
    await expect(smtpMailer(`smtp://otela:pw@127.0.0.1:${port}`).send(MAIL)).rejects.toThrow(/certificate/);
    expect([received, passwords]).toEqual([[], []]);
  });

  it.each(['smtp', 'smtps'])('sends user and password by %s', async (protocol) => {
    const { cert, key } = selfSigned(await temporaryDirectory(), 'mail', ['IP:127.0.0.1']);
    const tls = { cert: readFileSync(cert), key: readFileSync(key), secure: protocol === 'smtps' };
    const { port, received, passwords } = await startServer(tls);
    await smtpMailer(`${protocol}://otela:p%40w@127.0.0.1:${port}`, readFileSync(cert, 'utf8')).send(MAIL);
    expect(passwords).toEqual(['p@w']);
    expect(received).toMatchObject([{ user: 'otela', secure: true, to: ['ops@example.org'] }]);
  });
});
