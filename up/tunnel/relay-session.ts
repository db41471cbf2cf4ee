/**
 * The connection to the relay on the login node. `ssh` runs `otela-agent relay` there, and its input and output carry
 * HTTP/2: each stream is one TLS connection of an agent, which ends here and continues to the gateway.
 *
 * This needs no port forwarding, which some login nodes forbid, and leaves no forwarded port in a shared connection.
 */
// Not by name: an older Node, which lacks it, would report that instead of the version that it needs.
import http2, { type Http2Stream, type ServerHttp2Session } from 'node:http2';
import { connect } from 'node:net';
import { Duplex, type Readable } from 'node:stream';
import { type SecureContext, TLSSocket } from 'node:tls';
import { type Host, lastChars } from '../host/host.ts';
import { SSH_FAILED, sshFailure } from '../host/ssh-failure.ts';
import { UpError } from '../up-error.ts';

/** The relay's first line. A login shell may print other lines before it. */
const READY = /(?:^|\n)otela-agent relay (\S+)\n/;
const NOISE_MAX_BYTES = 64 * 1024;
const READY_MS = 60_000;
/** Exit codes of srun and of shells for a program that KILL or TERM ended. */
const KILLED: ReadonlySet<number | null> = new Set([137, 143]);
/** Maximum number of connections: as in the relay. */
const STREAMS_MAX = 512;

interface RelayOptions {
  ssh: Pick<Host, 'host' | 'spawn'>;
  /** The shell command that starts the relay. */
  command: string;
  context: SecureContext;
  /** Port of the gateway on this machine. */
  port(): number;
}

export interface RelayEnd {
  error: UpError;
  /** True if a signal ended the relay, or if ssh itself failed: ssh has one exit code for both. */
  byKillOrSsh: boolean;
}

export interface RelaySession {
  /** `host:port` at which the relay listens. */
  address: string;
  /** Resolves when the connection has ended. */
  ended: Promise<RelayEnd>;
  close(): void;
}

/** @throws UpError if the relay does not start */
export async function openRelay(options: RelayOptions): Promise<RelaySession> {
  const child = options.ssh.spawn(options.command);
  const errors = lastChars(child.stderr);
  const ended = new Promise<RelayEnd>((resolve) => {
    const end = (code: number | null) =>
      resolve({
        error: failureOf(options.ssh.host, code, errors()),
        byKillOrSsh: code === SSH_FAILED || KILLED.has(code),
      });
    child.once('error', () => end(SSH_FAILED)).once('close', end);
  });
  const ready = await Promise.race([readyLine(child.stdout), ended, expired()]);
  if (ready === undefined || 'error' in ready) {
    child.kill();
    throw (
      ready?.error ??
      new UpError(`The relay on ${options.ssh.host} did not start within a minute.`, 'Run otela up again.')
    );
  }
  const [, address = ''] = ready;
  // The transport is destroyed, not the session: in Node 24 a session over a stream other than a socket fails an
  // assertion if it says goodbye while another write is pending.
  const transport = Duplex.from({ readable: child.stdout, writable: child.stdin });
  transport.on('error', () => {});
  const session = serveStreams(transport, options);
  const close = () => {
    transport.destroy();
    child.kill();
  };
  session.once('close', close);
  return { address, ended, close };
}

function serveStreams(transport: Duplex, { context, port }: RelayOptions): ServerHttp2Session {
  const session = http2.performServerHandshake(transport, {
    settings: { maxConcurrentStreams: STREAMS_MAX },
  });
  session.on('error', () => {});
  session.on('stream', (stream) => {
    stream.respond({ ':status': 200 });
    joinGateway(stream, context, port());
  });
  return session;
}

/** Ends the agent's TLS here and passes its bytes to the gateway. */
function joinGateway(stream: Http2Stream & Duplex, secureContext: SecureContext, port: number): void {
  const node = new TLSSocket(stream, { isServer: true, secureContext });
  const gateway = connect(port, '127.0.0.1').setNoDelay(true);
  const end = () => {
    node.destroy();
    gateway.destroy();
    stream.destroy();
  };
  for (const one of [stream, node, gateway]) one.on('error', end).on('close', end);
  node.pipe(gateway);
  gateway.pipe(node);
}

/** Reads up to and including the relay's first line. Bytes after it stay in the stream. */
function readyLine(out: Readable): Promise<RegExpExecArray | undefined> {
  return new Promise((resolve) => {
    let text = '';
    const done = (match: RegExpExecArray | undefined) => {
      out.off('readable', look);
      resolve(match);
    };
    const look = () => {
      for (let piece: unknown = out.read(); Buffer.isBuffer(piece); piece = out.read()) {
        text += piece.toString('latin1');
        const match = READY.exec(text);
        if (match !== null) {
          const rest = text.slice(match.index + match[0].length);
          if (rest !== '') out.unshift(Buffer.from(rest, 'latin1'));
          return done(match);
        }
        if (text.length > NOISE_MAX_BYTES) return done(undefined);
      }
    };
    out.on('readable', look);
  });
}

function expired(): Promise<undefined> {
  return new Promise((resolve) => void setTimeout(resolve, READY_MS, undefined).unref());
}

function failureOf(host: string, code: number | null, errors: string): UpError {
  if (code === SSH_FAILED) return sshFailure(host, errors);
  const lines = errors.trim().split('\n');
  const said = lines.find((line) => line.startsWith('otela-agent: ')) ?? lines.at(-1) ?? '';
  if (/public address/.test(said))
    return new UpError(
      `The relay would listen at a public address of ${host}: ${said}`,
      "Give an address of the cluster's inner network with --relay-address.",
    );
  return new UpError(`The relay on ${host} ended${said === '' ? '' : `: ${said}`}`, 'otela connects again.');
}
