/**
 * nginx as a reverse proxy, which every operator has. Alone it is the least that any proxy adds; with an ssh tunnel
 * after it, it represents the manual setup for a job.
 */
import { chmod, mkdir, writeFile } from 'node:fs/promises';
import { userInfo } from 'node:os';
import { join } from 'node:path';
import { freePort, Managed, temporaryDirectory } from '../../test/support/processes.ts';
import type { Target } from '../client.ts';
import { versionOf } from '../programs.ts';
import { answering } from './installed.ts';
import type { Peer } from './peer.ts';

const NGINX = ['nginx', '-v'];
const WORKER_CONNECTIONS = 4_096;

async function startNginx(upstream: string): Promise<Target> {
  const directory = await temporaryDirectory('otela-peer-nginx');
  const port = await freePort();
  const { host } = new URL(upstream);
  await writeFile(
    join(directory, 'nginx.conf'),
    `daemon off; worker_processes 2; pid ${directory}/pid; error_log ${directory}/error.log;
user ${userInfo().username};
events { worker_connections ${WORKER_CONNECTIONS}; }
http {
  access_log off; client_body_temp_path ${directory}; proxy_temp_path ${directory};
  fastcgi_temp_path ${directory}; uwsgi_temp_path ${directory}; scgi_temp_path ${directory};
  keepalive_requests 10000000;
  upstream engine { server ${host}; keepalive 256; keepalive_requests 10000000; }
  server {
    listen 127.0.0.1:${port};
    location / { proxy_pass http://engine; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; }
  }
}
`,
  );
  const nginx = new Managed(['nginx', '-c', join(directory, 'nginx.conf')], { label: 'nginx' });
  const url = `http://127.0.0.1:${port}`;
  await answering(`${url}/v1/models`, nginx);
  return { url };
}

export const nginx: Peer = {
  name: 'nginx',
  does: { keys: false, usage: false, tunnel: false },
  install: () => versionOf(NGINX, /nginx\/(\S+)/, 'nginx-core'),
  start: startNginx,
};

/** `ssh -R` from the job to the login node, as people do it by hand: one port per engine. */
async function startTunnel(engine: string): Promise<string> {
  const directory = await temporaryDirectory('otela-peer-ssh');
  const [daemonPort, port] = [await freePort(), await freePort()];
  const [hostKey, userKey] = [join(directory, 'host'), join(directory, 'user')];
  for (const key of [hostKey, userKey]) {
    const { code } = await new Managed(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-f', key]).end(10_000);
    if (code !== 0) throw new Error('ssh-keygen failed');
  }
  await mkdir('/run/sshd', { recursive: true });
  await chmod(directory, 0o700);
  await writeFile(
    join(directory, 'sshd_config'),
    `ListenAddress 127.0.0.1:${daemonPort}
HostKey ${hostKey}
PidFile none
UsePAM no
StrictModes no
AuthorizedKeysFile ${userKey}.pub
PermitRootLogin prohibit-password
PasswordAuthentication no
AllowTcpForwarding remote
`,
  );
  const daemon = new Managed(['/usr/sbin/sshd', '-D', '-e', '-f', join(directory, 'sshd_config')], { label: 'sshd' });
  await daemon.line(/Server listening/, 10_000);
  const { hostname, port: enginePort } = new URL(engine);
  const options = [
    'BatchMode=yes',
    'ExitOnForwardFailure=yes',
    'StrictHostKeyChecking=no',
    'UserKnownHostsFile=/dev/null',
  ];
  const forward = `127.0.0.1:${port}:${hostname}:${enginePort}`;
  const tunnel = new Managed(
    [
      'ssh',
      '-N',
      '-i',
      userKey,
      '-p',
      String(daemonPort),
      ...options.flatMap((option) => ['-o', option]),
      '-R',
      forward,
      '127.0.0.1',
    ],
    { label: 'ssh' },
  );
  const url = `http://127.0.0.1:${port}`;
  await answering(`${url}/v1/models`, tunnel);
  return url;
}

export const sshTunnel: Peer = {
  name: 'ssh -R',
  does: { keys: false, usage: false, tunnel: true },
  install: async () => {
    const ssh = await versionOf(['ssh', '-V'], /OpenSSH_([\w.]+)/, 'openssh-client');
    await versionOf(['/usr/sbin/sshd', '-V'], /(OpenSSH\S*|unknown option|illegal option)/, 'openssh-server');
    return `OpenSSH ${ssh}, nginx ${await nginx.install()} before it`;
  },
  start: async (engine) => startNginx(await startTunnel(engine)),
};
