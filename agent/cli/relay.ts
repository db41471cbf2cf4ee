/**
 * `otela-agent relay`: passes connections of agents to one gateway through this command's own input and output. `otela
 * up` runs it on a login node by ssh, so that nodes that reach only the login node reach a gateway on a laptop. The
 * relay is that of `start --offer-relay`, with another way to the gateway.
 */
import { readFileSync } from 'node:fs';
import { type ClientHttp2Session, constants, connect as http2Connect } from 'node:http2';
import { createServer, type Server } from 'node:net';
import { hostname } from 'node:os';
import { Duplex, type Readable, type Writable } from 'node:stream';
import { isPrivateAddress } from '../../node/private-address.ts';
import { writePrivateFile } from '../../node/private-file.ts';
import { type Command, EXIT_DONE, type Flags, parseLine, UsageError } from '../../shared/command-line/index.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { neverRejects } from '../../shared/timing/in-background.ts';
import { gatewayUrl } from '../config/gateways-config.ts';
import { readSecretFile } from '../config/secret-file.ts';
import { addressToward } from '../host/address-toward.ts';
import { withPort } from '../mesh/host-addresses.ts';
import { ProxyRelay } from '../mesh/proxy-relay/proxy-relay.ts';
import type { CommandContext } from './command-context.ts';

/** Interval of pings, and the time without an answer after which the other end counts as gone: a laptop sleeps. */
const PING_MS = 15_000;
const GONE_MS = 45_000;
const FLAGS = {
  gateway: { value: 'URL', help: 'the gateway at the other end; agents ask for it by this URL' },
  'token-file': { value: 'FILE', takes: 'file', help: 'file with the join token; agents prove that they know it' },
  toward: {
    value: 'HOST',
    help: 'a compute node: the relay listens at the address from which this machine reaches it',
  },
  address: { value: 'ADDRESS', help: 'listen at this address instead' },
  'address-file': { value: 'FILE', takes: 'file', help: 'write HOST:PORT here, for `otela-agent start --relay FILE`' },
  'pid-file': { value: 'FILE', takes: 'file', help: 'end the relay that wrote this file, then write it' },
} as const satisfies Flags;

export const RELAY_COMMAND: Command<CommandContext> = {
  summary: 'pass connections of agents to a gateway through stdin and stdout',
  examples: `--gateway URL --token-file FILE (--toward HOST | --address ADDRESS) [--address-file FILE] [--pid-file FILE]

\`otela up\` runs this on a login node. It refuses to listen at a public address, serves only agents that prove to know the join token, and
ends with its input. Its output begins with the line "otela-agent relay HOST:PORT"; the connections follow as HTTP/2.`,
  flags: FLAGS,
  run: relayCommand,
};

async function relayCommand(argv: readonly string[], { env, io }: CommandContext): Promise<number> {
  const { values } = parseLine(argv, FLAGS);
  const { gateway, 'token-file': tokenFile, 'pid-file': pidFile, toward } = values;
  if (gateway === undefined || tokenFile === undefined) throw new UsageError('--gateway and --token-file are required');
  const url = gatewayUrl(gateway);
  const warn = (line: string) => io.log(line);
  const token = readSecretFile('--token-file', tokenFile, { env, warn });
  const address = values.address ?? (toward === undefined ? undefined : await addressToward(toward));
  if (address === undefined) throw new UsageError('an address is missing: give --toward HOST or --address ADDRESS');
  if (!isPrivateAddress(address))
    throw new UsageError(`${address} is a public address; give --address with one of the cluster's inner network`);
  if (pidFile !== undefined) {
    endEarlier(pidFile);
    writePrivateFile(pidFile, `${process.pid} ${hostname()}\n`);
  }
  const server = createServer();
  await new Promise<void>((resolve, reject) => server.once('error', reject).listen(0, address, resolve));
  const bound = server.address();
  const port = typeof bound === 'object' ? (bound?.port ?? 0) : 0;
  const addressFile = values['address-file'];
  if (addressFile !== undefined) writePrivateFile(addressFile, `${withPort(address, port)}\n`);
  io.stdout.write(`otela-agent relay ${withPort(address, port)}\n`);
  await serve(server, { url, token, env, log: io.log, input: process.stdin, output: io.stdout });
  return EXIT_DONE;
}

interface Relaying {
  url: URL;
  token: string;
  env: CommandContext['env'];
  log(line: string): void;
  input: Readable;
  output: Writable;
}

/** Resolves when the other end is gone. */
async function serve(server: Server, { url, token, env, log, input, output }: Relaying): Promise<void> {
  // The transport is destroyed, not the session: in Node 24 a session over a stream other than a socket fails an
  // assertion if it says goodbye while another write is pending.
  const transport = Duplex.from({ readable: input, writable: output });
  transport.on('error', () => {});
  const session = http2Connect('http://otela', {
    createConnection: () => transport,
  });
  const ended = new Promise<void>((resolve) => session.once('close', resolve));
  session.on('error', (error) => log(`relay: ${errorText(error)}`));
  input.once('end', () => transport.destroy());
  const relay = new ProxyRelay({
    gateways: [url],
    tokens: [token],
    offered: true,
    env,
    open: () => openStream(session),
    log,
  });
  server.on('connection', (socket) => neverRejects(relay.take(socket)));
  const stopPings = pingUntilGone(session, () => transport.destroy());
  await ended;
  stopPings();
  relay.close();
  server.close();
}

function openStream(session: ClientHttp2Session): Duplex {
  const { HTTP2_HEADER_METHOD, HTTP2_HEADER_AUTHORITY } = constants;
  return session.request(
    { [HTTP2_HEADER_METHOD]: 'CONNECT', [HTTP2_HEADER_AUTHORITY]: 'gateway' },
    { endStream: false },
  );
}

/** Ends the session if a ping gets no answer: the ssh server may notice a sleeping laptop only after hours. */
function pingUntilGone(session: ClientHttp2Session, end: () => void): () => void {
  let answeredAt = performance.now();
  const timer = setInterval(() => {
    if (performance.now() - answeredAt > GONE_MS) return end();
    if (!session.destroyed)
      session.ping((error) => {
        if (error === null) answeredAt = performance.now();
      });
  }, PING_MS);
  return () => clearInterval(timer);
}

/** Ends the relay of an earlier connection, which may not know yet that its laptop is gone. */
function endEarlier(pidFile: string): void {
  try {
    const [, pid = '', host] = /^(\d{1,10}) (\S+)\n$/.exec(readFileSync(pidFile, 'utf8')) ?? [];
    // The number may belong to another program by now, or to a process of another login node.
    if (host === hostname() && readFileSync(`/proc/${pid}/cmdline`, 'latin1').includes(pidFile))
      process.kill(Number(pid), 'SIGTERM');
  } catch {
    // There is no earlier relay.
  }
}
